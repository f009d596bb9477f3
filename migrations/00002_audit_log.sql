-- +goose Up
-- One row per transition. audit_id is drawn while the target's row is locked, so
-- the rows of a target are in the order of their transitions. It is drawn after
-- the transaction has its id, which lets subscriptions read in its order.
CREATE TABLE audit_log (
    tenant_id      uuid        NOT NULL,
    target_id      uuid        NOT NULL,
    audit_id       bigint      NOT NULL GENERATED ALWAYS AS IDENTITY,
    created_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    action         text        NOT NULL,
    actor_kind     text        NOT NULL,
    actor_id       text,
    correlation_id text,
    reason         text,
    before         jsonb,
    after          jsonb       NOT NULL,
    CONSTRAINT audit_log_pkey PRIMARY KEY (tenant_id, target_id, audit_id),
    CONSTRAINT audit_log_actor_known CHECK (actor_kind IN ('user', 'system', 'job', 'anonymous'))
) WITH (autovacuum_vacuum_insert_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);

CREATE INDEX audit_log_id_idx ON audit_log (audit_id);

CREATE INDEX audit_log_created_idx ON audit_log USING brin (created_at) WITH (pages_per_range = 32, autosummarize = on);

-- +goose Down
DROP TABLE audit_log;
