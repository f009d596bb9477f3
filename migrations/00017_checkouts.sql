-- +goose Up
-- The write-ahead record of a checkout. holds and units are what the reserve
-- step locked, which is the same transaction as the insert: so no row is ever
-- reserving. callback_url is where the payment is validated, NULL if the shop
-- answers on its own. next_attempt_at is when recovery takes the row next.
CREATE TABLE checkouts (
    tenant_id         uuid        NOT NULL,
    checkout_id       uuid        NOT NULL,
    cart_id           text        NOT NULL,
    payment_reference text        NOT NULL,
    callback_url      text,
    status            text        NOT NULL DEFAULT 'validating',
    reason            text,
    alert             text,
    holds             integer     NOT NULL,
    units             bigint      NOT NULL,
    attempt           integer     NOT NULL DEFAULT 0,
    correlation_id    text,
    deadline          timestamptz NOT NULL,
    next_attempt_at   timestamptz NOT NULL,
    created_at        timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at        timestamptz NOT NULL DEFAULT clock_timestamp(),
    ended_at          timestamptz,
    CONSTRAINT checkouts_pkey PRIMARY KEY (tenant_id, checkout_id),
    CONSTRAINT checkouts_status_known CHECK (status IN ('validating', 'finalizing', 'committed', 'compensated', 'failed')),
    CONSTRAINT checkouts_ended_once CHECK ((status IN ('validating', 'finalizing')) = (ended_at IS NULL)),
    CONSTRAINT checkouts_reason_given CHECK ((status IN ('compensated', 'failed')) = (reason IS NOT NULL)),
    CONSTRAINT checkouts_alert_known CHECK (alert IN ('paid_too_late', 'stock_lost')),
    CONSTRAINT checkouts_failure_alerted CHECK (status <> 'failed' OR alert IS NOT NULL),
    CONSTRAINT checkouts_holds_positive CHECK (holds > 0 AND units >= holds),
    CONSTRAINT checkouts_attempt_counted CHECK (attempt >= 0)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0);

-- A cart has one unfinished checkout.
CREATE UNIQUE INDEX checkouts_cart_once ON checkouts (tenant_id, cart_id) WHERE ended_at IS NULL;

CREATE INDEX checkouts_due_idx ON checkouts (next_attempt_at) WHERE ended_at IS NULL;

CREATE INDEX checkouts_ended_idx ON checkouts (ended_at) WHERE ended_at IS NOT NULL;

-- +goose Down
DROP TABLE checkouts;
