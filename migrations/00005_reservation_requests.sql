-- +goose Up
-- No index mentions a column that deciding a request changes, so queued → done is
-- a heap-only update, which writes no index entry. lane and slot are a hint that
-- admission sets, and never change. Only an isolated retry sets claim_expires_at.
CREATE TABLE reservation_requests (
    tenant_id        uuid        NOT NULL,
    request_id       uuid        NOT NULL,
    sequence         bigint      NOT NULL GENERATED ALWAYS AS IDENTITY,
    created_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    claim_epoch      integer     NOT NULL DEFAULT 0,
    quantity         integer     NOT NULL,
    slot             smallint    NOT NULL DEFAULT 0,
    attempts         smallint    NOT NULL DEFAULT 0,
    lane             text        NOT NULL,
    status           text        NOT NULL DEFAULT 'queued',
    kind             text        NOT NULL DEFAULT 'add',
    cart_id          text        NOT NULL,
    variant_id       text        NOT NULL,
    reason           text,
    actor_id         text,
    correlation_id   text,
    idempotency_key  text,
    fingerprint      bytea,
    retry_of         uuid,
    claim_expires_at timestamptz,
    CONSTRAINT reservation_requests_pkey PRIMARY KEY (tenant_id, request_id),
    CONSTRAINT reservation_requests_quantity_positive CHECK (quantity > 0),
    CONSTRAINT reservation_requests_lane_known CHECK (lane IN ('hot', 'normal')),
    CONSTRAINT reservation_requests_kind_known CHECK (kind IN ('add', 'set')),
    CONSTRAINT reservation_requests_status_known CHECK (status IN ('queued', 'processing', 'done', 'failed')),
    CONSTRAINT reservation_requests_reason_given CHECK ((status = 'failed') = (reason IS NOT NULL)),
    CONSTRAINT reservation_requests_key_fingerprinted CHECK ((idempotency_key IS NULL) = (fingerprint IS NULL))
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0);

CREATE UNIQUE INDEX reservation_requests_idempotency_key ON reservation_requests (tenant_id, idempotency_key) WHERE idempotency_key IS NOT NULL;

CREATE INDEX reservation_requests_stream_idx ON reservation_requests (lane, slot, sequence);

CREATE INDEX reservation_requests_cart_idx ON reservation_requests (tenant_id, cart_id, sequence);

CREATE INDEX reservation_requests_claim_idx ON reservation_requests (claim_expires_at) WHERE claim_expires_at IS NOT NULL;

-- +goose Down
DROP TABLE reservation_requests;
