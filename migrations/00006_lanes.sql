-- +goose Up
-- A lane has one row with slot -1, its controls (pause, rate cap and its token
-- bucket, measured rate), and one row per slot. The lock of a slot's row is the
-- lease of the slot, and its stream has no queued request at or below its
-- low-water mark. The normal lane has slot 0, and later migrations add slot 1.
CREATE TABLE lane_slots (
    lane                text             NOT NULL,
    slot                smallint         NOT NULL,
    low_water           bigint           NOT NULL DEFAULT 0,
    next_low_water      bigint           NOT NULL DEFAULT 0,
    next_horizon        xid8,
    paused              boolean          NOT NULL DEFAULT false,
    rate_cap            integer,
    tokens              double precision NOT NULL DEFAULT 0,
    refilled_at         timestamptz      NOT NULL DEFAULT clock_timestamp(),
    decided             bigint           NOT NULL DEFAULT 0,
    window_decided      bigint           NOT NULL DEFAULT 0,
    window_started_at   timestamptz      NOT NULL DEFAULT clock_timestamp(),
    rate                double precision NOT NULL DEFAULT 0,
    CONSTRAINT lane_slots_pkey PRIMARY KEY (lane, slot),
    CONSTRAINT lane_slots_lane_known CHECK (lane IN ('hot', 'normal')),
    CONSTRAINT lane_slots_slot_range CHECK (slot BETWEEN -1 AND 1023),
    CONSTRAINT lane_slots_rate_cap_positive CHECK (rate_cap > 0)
) WITH (fillfactor = 10, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 200, autovacuum_vacuum_cost_delay = 0);

INSERT INTO lane_slots (lane, slot) VALUES ('hot', -1), ('normal', -1), ('normal', 0);

-- Only its slot decides the requests of a variant listed here. entering: requests
-- admitted before the move may still be in the normal stream. leaving: new
-- requests go to the normal stream, and the slot decides them until its own
-- stream has none of the variant left.
CREATE TABLE hot_variants (
    tenant_id  uuid        NOT NULL,
    variant_id text        NOT NULL,
    slot       smallint    NOT NULL,
    state      text        NOT NULL DEFAULT 'entering',
    pinned     boolean     NOT NULL DEFAULT false,
    horizon    xid8,
    moved_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT hot_variants_pkey PRIMARY KEY (tenant_id, variant_id),
    CONSTRAINT hot_variants_state_known CHECK (state IN ('entering', 'hot', 'leaving'))
) WITH (fillfactor = 50);

CREATE INDEX hot_variants_slot_idx ON hot_variants (slot);

-- +goose Down
DROP TABLE hot_variants;

DROP TABLE lane_slots;
