-- +goose Up
-- Single-use tokens. Only the hash of a token is stored. 256 random bits need
-- neither salt nor a slow hash. Half of each page stays free for the one update
-- of each row, which then writes no index entry.
CREATE TABLE expiring_tokens (
    tenant_id   uuid        NOT NULL,
    token_hash  bytea       NOT NULL,
    purpose     text        NOT NULL,
    subject     text        NOT NULL,
    payload     json        NOT NULL,
    created_at  timestamptz NOT NULL,
    expires_at  timestamptz NOT NULL,
    consumed_at timestamptz,
    CONSTRAINT expiring_tokens_pkey PRIMARY KEY (tenant_id, token_hash),
    CONSTRAINT expiring_tokens_hash_length CHECK (octet_length(token_hash) = 32),
    CONSTRAINT expiring_tokens_expire_later CHECK (expires_at > created_at),
    CONSTRAINT expiring_tokens_consumed_in_time CHECK (consumed_at < expires_at)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0);

CREATE INDEX expiring_tokens_expires_idx ON expiring_tokens (expires_at);

-- A reservation in a scope locks its row, which also has the sums of a
-- sliding-window counter. Each window in use is divided into sixty buckets. A
-- bucket is a triple: the window in seconds, the bucket's index since 1970, and
-- the amount reserved in it.
--
-- ahead is by how many microseconds the scope's own clock is ahead of the
-- database's clock, because that was set back. Times of a scope only grow.
-- Without this column all its entries would count until the database's clock has
-- caught up.
CREATE TABLE budget_scopes (
    tenant_id uuid        NOT NULL,
    scope     text        NOT NULL COLLATE "C",
    last_at   timestamptz NOT NULL,
    ahead     bigint      NOT NULL DEFAULT 0,
    sums      bigint[]    NOT NULL,
    CONSTRAINT budget_scopes_pkey PRIMARY KEY (tenant_id, scope),
    CONSTRAINT budget_scopes_ahead_not_behind CHECK (ahead >= 0),
    CONSTRAINT budget_scopes_sums_triples CHECK (cardinality(sums) % 3 = 0),
    CONSTRAINT budget_scopes_sums_counted CHECK (0 <= ALL (sums))
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0);

-- Append-only. recorded_at identifies an entry within its scope. It is unique
-- there, because it is set under the lock of the scope's row. An entry with
-- reserved_at settles the entry recorded then: it has the difference, once.
CREATE TABLE budget_ledger (
    tenant_id   uuid        NOT NULL,
    scope       text        NOT NULL COLLATE "C",
    recorded_at timestamptz NOT NULL,
    amount      bigint      NOT NULL,
    reserved_at timestamptz,
    CONSTRAINT budget_ledger_pkey PRIMARY KEY (tenant_id, scope, recorded_at),
    CONSTRAINT budget_ledger_reserves_some CHECK (amount > 0 OR reserved_at IS NOT NULL),
    CONSTRAINT budget_ledger_settles_later CHECK (reserved_at < recorded_at)
) WITH (autovacuum_vacuum_insert_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);

CREATE UNIQUE INDEX budget_ledger_settled_key ON budget_ledger (tenant_id, scope, reserved_at) WHERE reserved_at IS NOT NULL;

CREATE INDEX budget_ledger_recorded_idx ON budget_ledger (recorded_at);

-- A rate limit allows an amount at once and refills evenly (GCRA, the generic
-- cell rate algorithm). Its only state is when it will be full again, in
-- nanoseconds since 1970. A limit without a row is full.
CREATE TABLE budget_rates (
    tenant_id uuid   NOT NULL,
    scope     text   NOT NULL COLLATE "C",
    full_at   bigint NOT NULL,
    CONSTRAINT budget_rates_pkey PRIMARY KEY (tenant_id, scope)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0);

-- The command of each idempotency key of a queue, kept longer than River keeps a
-- finished job. outcome and ended_at are how and when the command's work ended.
-- Its worker writes them once, in the transaction of the work. River completes
-- the job later, and runs it again if the worker dies before that.
CREATE TABLE command_keys (
    tenant_id       uuid        NOT NULL,
    queue           text        NOT NULL,
    idempotency_key text        NOT NULL,
    command_id      uuid        NOT NULL,
    kind            text        NOT NULL,
    fingerprint     bytea       NOT NULL,
    job_id          bigint,
    created_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    outcome         text,
    ended_at        timestamptz,
    CONSTRAINT command_keys_pkey PRIMARY KEY (tenant_id, queue, idempotency_key),
    CONSTRAINT command_keys_command_key UNIQUE (tenant_id, command_id),
    CONSTRAINT command_keys_outcome_known CHECK (outcome IN ('done', 'failed')),
    CONSTRAINT command_keys_ended_with_outcome CHECK ((outcome IS NULL) = (ended_at IS NULL))
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0);

CREATE INDEX command_keys_created_idx ON command_keys (created_at);

-- +goose Down
DROP TABLE command_keys;

DROP TABLE budget_rates;

DROP TABLE budget_ledger;

DROP TABLE budget_scopes;

DROP TABLE expiring_tokens;
