-- +goose Up
-- One row per unit with its own identity: a seat, a serial number. position is
-- the order of the units within their block; units with consecutive positions
-- are neighbours. A pending unit belongs to the reservation in reservation_id,
-- and so does an inactive one, for good. Every index is one more entry to write
-- whenever a unit changes hands, so there are only two: a reservation knows the
-- ids of its units, and finds them by primary key.
CREATE TABLE postings (
    tenant_id      uuid        NOT NULL,
    block          text        NOT NULL,
    unit_id        text        NOT NULL,
    position       bigint      NOT NULL,
    status         text        NOT NULL DEFAULT 'active',
    reservation_id uuid,
    created_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT postings_pkey PRIMARY KEY (tenant_id, block, unit_id),
    CONSTRAINT postings_status_known CHECK (status IN ('active', 'pending_inactive', 'inactive')),
    CONSTRAINT postings_owned CHECK ((status = 'active') = (reservation_id IS NULL)),
    CONSTRAINT postings_unit_length CHECK (char_length(unit_id) BETWEEN 1 AND 128)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0);

-- "Any n units of this block" reads the first n entries.
CREATE INDEX postings_active_idx ON postings (tenant_id, block, position, unit_id) WHERE status = 'active';

-- named_units: the variant is a block whose units have their own identity. Its
-- stock is the number of its postings that are not inactive, and reserved the
-- number of those that are pending. units counts all of its postings, and
-- last_position is the highest of their positions.
ALTER TABLE inventory_stocks
ADD COLUMN named_units boolean NOT NULL DEFAULT false,
ADD COLUMN units bigint NOT NULL DEFAULT 0,
ADD COLUMN last_position bigint NOT NULL DEFAULT 0,
ADD CONSTRAINT inventory_stocks_units_counted CHECK (NOT named_units OR (tracked AND NOT backorder)),
ADD CONSTRAINT inventory_stocks_units_known CHECK (NOT named_units OR stock <= units);

-- The units that a hold reserved, as a JSON array in the order of their
-- positions; NULL for counted units. checkout_id is the checkout that a hold is
-- locked to: no other verb ends or extends it.
ALTER TABLE reservations
ADD COLUMN unit_ids jsonb,
ADD COLUMN checkout_id uuid;

CREATE INDEX reservations_checkout_idx ON reservations (tenant_id, checkout_id) WHERE checkout_id IS NOT NULL;

-- Which units of a block the caller wants: {"unit_ids":["A1","A2"]},
-- {"any_of":true} or {"contiguous":true}; NULL for a request that names a variant
-- and a quantity.
ALTER TABLE reservation_requests ADD COLUMN units jsonb;

-- For the history of one unit. Each row is found by its units, its block and its
-- tenant, so that units of one name in many blocks are not read for each other.
CREATE INDEX audit_log_units_idx ON audit_log
USING gin (((after -> 'unit_ids') || (after -> 'resource_key') || ('"' || tenant_id::text || '"')::jsonb))
WHERE after ? 'unit_ids';

-- +goose Down
DROP INDEX audit_log_units_idx;

ALTER TABLE reservation_requests DROP COLUMN units;

DROP INDEX reservations_checkout_idx;

ALTER TABLE reservations DROP COLUMN checkout_id, DROP COLUMN unit_ids;

ALTER TABLE inventory_stocks DROP CONSTRAINT inventory_stocks_units_known, DROP CONSTRAINT inventory_stocks_units_counted, DROP COLUMN last_position, DROP COLUMN units, DROP COLUMN named_units;

DROP TABLE postings;
