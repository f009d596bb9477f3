-- +goose Up
-- For kernels that also count committed units: tickets, quotas. Committed units
-- of a variant have left its stock, so this index excludes them.
CREATE INDEX reservations_committed_idx ON reservations (tenant_id, resource_kind, resource_key)
    WHERE status = 'committed' AND resource_kind <> 'inventory.variant';

-- +goose Down
DROP INDEX reservations_committed_idx;
