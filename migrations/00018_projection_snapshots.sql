-- +goose Up
-- The present state of each key of each projection. version counts the events
-- in it and the rebuilds. position is the id of the last audit row in it, 0 if
-- its events do not come from the record. Rows are rewritten often, and no index
-- mentions a column that changes, so each page has room for heap-only updates.
-- refused_bytes is what events that could not be folded have cost in successive
-- runs, in bytes of JSON. A parked key is not folded until it is rebuilt: it
-- lacks the events from parked_audit_id on, 0 if they do not come from the
-- record. Its version is 0 if it has no state.
CREATE TABLE projection_snapshots (
    tenant_id       uuid        NOT NULL,
    projection_name text        NOT NULL,
    key             text        NOT NULL,
    state           json        NOT NULL,
    version         bigint      NOT NULL,
    position        bigint      NOT NULL DEFAULT 0,
    updated_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    refused_bytes   bigint      NOT NULL DEFAULT 0,
    parked_at       timestamptz,
    parked_audit_id bigint,
    parked_reason   text,
    CONSTRAINT projection_snapshots_pkey PRIMARY KEY (tenant_id, projection_name, key),
    CONSTRAINT projection_snapshots_name_length CHECK (char_length(projection_name) BETWEEN 1 AND 64),
    CONSTRAINT projection_snapshots_key_length CHECK (char_length(key) BETWEEN 1 AND 256),
    CONSTRAINT projection_snapshots_counted CHECK (version >= 0 AND position >= 0 AND refused_bytes >= 0),
    CONSTRAINT projection_snapshots_parked CHECK (num_nulls(parked_at, parked_audit_id, parked_reason) IN (0, 3))
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 200, autovacuum_vacuum_cost_delay = 0);

-- +goose Down
DROP TABLE projection_snapshots;
