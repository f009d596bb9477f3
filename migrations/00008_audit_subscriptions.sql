-- +goose Up
-- The position of each named subscription. Rows up to position are delivered.
-- Rows up to settled are visible, or never will be. next becomes settled once
-- every transaction below next_horizon has ended. Only the process with the lease
-- delivers. The epoch of the lease excludes its earlier owners.
CREATE TABLE audit_subscriptions (
    name             text        NOT NULL,
    position         bigint      NOT NULL,
    settled          bigint      NOT NULL,
    next             bigint      NOT NULL,
    next_horizon     xid8        NOT NULL,
    lease_epoch      bigint      NOT NULL DEFAULT 0,
    lease_expires_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    failures         integer     NOT NULL DEFAULT 0,
    last_error       text,
    created_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    delivered_at     timestamptz,
    CONSTRAINT audit_subscriptions_pkey PRIMARY KEY (name),
    CONSTRAINT audit_subscriptions_name_length CHECK (char_length(name) BETWEEN 1 AND 64),
    CONSTRAINT audit_subscriptions_in_order CHECK (position <= settled AND settled <= next)
) WITH (fillfactor = 10, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 200, autovacuum_vacuum_cost_delay = 0);

-- +goose Down
DROP TABLE audit_subscriptions;
