-- +goose Up
CREATE TABLE tenants (
    tenant_id  uuid        NOT NULL,
    name       text        NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT tenants_pkey PRIMARY KEY (tenant_id),
    CONSTRAINT tenants_name_key UNIQUE (name),
    CONSTRAINT tenants_name_length CHECK (char_length(name) BETWEEN 1 AND 128)
);

-- A key's secret has 256 bits, so its hash is unique without a unique index,
-- which could not begin with the tenant.
CREATE TABLE api_keys (
    tenant_id  uuid        NOT NULL,
    key_id     uuid        NOT NULL,
    name       text        NOT NULL,
    prefix     text        NOT NULL,
    hash       bytea       NOT NULL,
    scopes     text[]      NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    revoked_at timestamptz,
    CONSTRAINT api_keys_pkey PRIMARY KEY (tenant_id, key_id),
    CONSTRAINT api_keys_tenant_fkey FOREIGN KEY (tenant_id) REFERENCES tenants (tenant_id),
    CONSTRAINT api_keys_scopes_known CHECK (scopes <@ ARRAY['cart', 'stock', 'ops'] AND cardinality(scopes) > 0)
);

CREATE INDEX api_keys_hash_idx ON api_keys USING hash (hash);

-- Responses of the calls that finish at once, written in the transaction of the
-- call.
-- kept_with is the checkout that the call began, if it began one. Such a key is
-- deleted with its checkout, and every other one by its age.
CREATE TABLE idempotency_keys (
    tenant_id       uuid        NOT NULL,
    idempotency_key text        NOT NULL,
    fingerprint     bytea       NOT NULL,
    status_code     smallint,
    body            bytea,
    created_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    kept_with       uuid,
    CONSTRAINT idempotency_keys_pkey PRIMARY KEY (tenant_id, idempotency_key)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0);

CREATE INDEX idempotency_keys_created_idx ON idempotency_keys (created_at) WHERE kept_with IS NULL;

CREATE INDEX idempotency_keys_kept_idx ON idempotency_keys (tenant_id, kept_with) WHERE kept_with IS NOT NULL;

-- +goose Down
DROP TABLE idempotency_keys;

DROP TABLE api_keys;

DROP TABLE tenants;
