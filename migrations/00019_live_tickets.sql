-- +goose Up
-- Tickets that open one live connection each. A ticket has 256 random bits, so
-- its hash is unique without a unique index, which could not begin with the
-- tenant. A ticket that is used is deleted.
CREATE TABLE live_tickets (
    tenant_id  uuid        NOT NULL,
    hash       bytea       NOT NULL,
    key_id     uuid        NOT NULL,
    scopes     text[]      NOT NULL,
    expires_at timestamptz NOT NULL,
    CONSTRAINT live_tickets_pkey PRIMARY KEY (tenant_id, hash),
    CONSTRAINT live_tickets_hash_length CHECK (octet_length(hash) = 32)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0);

CREATE INDEX live_tickets_hash_idx ON live_tickets USING hash (hash);

CREATE INDEX live_tickets_tenant_expires_idx ON live_tickets (tenant_id, expires_at);

CREATE INDEX live_tickets_expires_idx ON live_tickets (expires_at);

-- +goose Down
DROP TABLE live_tickets;
