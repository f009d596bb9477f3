-- +goose Up
-- The number of waiting requests of each lane. One process counted them for all,
-- between counted_at and published_at. drawn is the last sequence number drawn
-- before that. A row may be lost, because the requests are counted again.
CREATE TABLE lane_loads (
    lane         text        NOT NULL,
    drawn        bigint      NOT NULL,
    load         jsonb       NOT NULL,
    counted_at   timestamptz NOT NULL,
    published_at timestamptz NOT NULL,
    CONSTRAINT lane_loads_pkey PRIMARY KEY (lane),
    CONSTRAINT lane_loads_lane_known CHECK (lane IN ('hot', 'normal'))
) WITH (fillfactor = 10, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 200, autovacuum_vacuum_cost_delay = 0);

-- +goose Down
DROP TABLE lane_loads;
