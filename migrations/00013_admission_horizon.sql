-- +goose Up
-- A low-water mark waits for admissions only, which are known by their advisory locks: no mark is noted beforehand.
ALTER TABLE lane_slots DROP COLUMN next_low_water, DROP COLUMN next_horizon;

-- The last sequence number drawn when a move was first seen: it ends once every admission that began before has ended.
ALTER TABLE hot_variants DROP COLUMN horizon, ADD COLUMN admitted_before bigint;

-- +goose Down
ALTER TABLE hot_variants DROP COLUMN admitted_before, ADD COLUMN horizon xid8;

ALTER TABLE lane_slots ADD COLUMN next_low_water bigint NOT NULL DEFAULT 0, ADD COLUMN next_horizon xid8;
