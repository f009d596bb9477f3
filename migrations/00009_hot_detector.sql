-- +goose Up
-- A tenant listed here floods the normal lane. Its requests for variants that are
-- not hot are admitted to a second stream of the normal lane, in which the other
-- tenants do not wait. The row is a hint to admission. Deleting it moves nothing.
CREATE TABLE diverted_tenants (
    tenant_id   uuid        NOT NULL,
    slot        smallint    NOT NULL,
    why         text        NOT NULL,
    diverted_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT diverted_tenants_pkey PRIMARY KEY (tenant_id),
    CONSTRAINT diverted_tenants_slot_aside CHECK (slot > 0)
) WITH (fillfactor = 50);

INSERT INTO lane_slots (lane, slot) VALUES ('normal', 1) ON CONFLICT (lane, slot) DO NOTHING;

-- why is the reason for which a variant became hot, null if it was pinned.
ALTER TABLE hot_variants ADD COLUMN why text;

-- The arrival rates that each API process measured in its last window: of a
-- variant, of a whole tenant (variant_id ''), and of all tenants (tenant_id
-- zero). A row that is not written again soon does not count any more.
CREATE TABLE hot_signals (
    tenant_id  uuid             NOT NULL,
    variant_id text             NOT NULL,
    source     uuid             NOT NULL,
    rate       double precision NOT NULL,
    noted_at   timestamptz      NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT hot_signals_pkey PRIMARY KEY (tenant_id, variant_id, source)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);

-- The detector's state of a variant, or of a tenant (variant_id ''), between its
-- passes: since when it has been busy enough to be moved, and since when quiet
-- enough to be moved back.
CREATE TABLE hot_watches (
    tenant_id   uuid             NOT NULL,
    variant_id  text             NOT NULL,
    rate        double precision NOT NULL,
    waiting     integer          NOT NULL,
    busy_since  timestamptz,
    quiet_since timestamptz,
    CONSTRAINT hot_watches_pkey PRIMARY KEY (tenant_id, variant_id)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);

-- One row. The process that has it locked is the detector. seen is the last
-- sequence number that a pass has read.
CREATE TABLE hot_detector (
    detector integer     NOT NULL DEFAULT 1,
    ran_at   timestamptz NOT NULL DEFAULT '-infinity',
    seen     bigint      NOT NULL DEFAULT 0,
    CONSTRAINT hot_detector_pkey PRIMARY KEY (detector),
    CONSTRAINT hot_detector_alone CHECK (detector = 1)
) WITH (fillfactor = 10);

INSERT INTO hot_detector DEFAULT VALUES;

-- +goose Down
DROP TABLE hot_detector;

DROP TABLE hot_watches;

DROP TABLE hot_signals;

ALTER TABLE hot_variants DROP COLUMN why;

-- Requests that are left in the removed stream are decided with the others.
UPDATE reservation_requests SET slot = 0 WHERE lane = 'normal' AND slot > 0;

UPDATE lane_slots SET low_water = 0, next_low_water = 0, next_horizon = NULL WHERE lane = 'normal' AND slot = 0;

DELETE FROM lane_slots WHERE lane = 'normal' AND slot > 0;

DROP TABLE diverted_tenants;
