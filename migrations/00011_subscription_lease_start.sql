-- +goose Up
-- When the lease was last taken or renewed. A lease from the future was taken
-- before the database's clock was set back, and any process may take it over.
-- Otherwise, after the death of its owner, a subscription would wait until the
-- clock has caught up.
ALTER TABLE audit_subscriptions ADD COLUMN leased_at timestamptz NOT NULL DEFAULT '-infinity';

-- +goose Down
ALTER TABLE audit_subscriptions DROP COLUMN leased_at;
