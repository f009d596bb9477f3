-- +goose Up
-- A hold made for a request has the request's id, so the primary key forbids a
-- second hold for one request.
CREATE TABLE reservations (
    tenant_id       uuid        NOT NULL,
    reservation_id  uuid        NOT NULL,
    resource_kind   text        NOT NULL,
    resource_key    text        NOT NULL,
    resource_window text,
    holder_id       text        NOT NULL,
    quantity        bigint      NOT NULL,
    status          text        NOT NULL DEFAULT 'held',
    release_reason  text,
    first_held_at   timestamptz NOT NULL,
    held_at         timestamptz NOT NULL,
    expires_at      timestamptz NOT NULL,
    ended_at        timestamptz,
    dismissed_at    timestamptz,
    CONSTRAINT reservations_pkey PRIMARY KEY (tenant_id, reservation_id),
    CONSTRAINT reservations_quantity_positive CHECK (quantity > 0),
    CONSTRAINT reservations_status_known CHECK (status IN ('held', 'committed', 'released', 'expired')),
    CONSTRAINT reservations_ended_once CHECK ((status = 'held') = (ended_at IS NULL)),
    CONSTRAINT reservations_reason_given CHECK ((status IN ('released', 'expired')) = (release_reason IS NOT NULL))
) WITH (fillfactor = 85, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0);

CREATE INDEX reservations_holder_idx ON reservations (tenant_id, holder_id, resource_key);

CREATE INDEX reservations_held_idx ON reservations (tenant_id, resource_key, expires_at) WHERE status = 'held';

-- Only for the sweep. Its predicate is equivalent to status = 'held', but no
-- query for one resource uses it. Otherwise, where most holds are of one hot
-- resource or few are due, the planner would also use this index for such a
-- query, and read the due holds of all tenants.
CREATE INDEX reservations_due_idx ON reservations (expires_at) WHERE ended_at IS NULL;

CREATE INDEX reservations_ended_idx ON reservations (ended_at) WHERE ended_at IS NOT NULL;

-- +goose Down
DROP TABLE reservations;
