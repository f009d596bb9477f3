-- +goose Up
-- What a kernel counts that goes on counting once it is committed: tickets, quotas. A variant's units have left its
-- stock, so they pay nothing for it.
CREATE INDEX reservations_committed_idx ON reservations (tenant_id, resource_kind, resource_key)
    WHERE status = 'committed' AND resource_kind <> 'inventory.variant';

-- +goose Down
DROP INDEX reservations_committed_idx;
