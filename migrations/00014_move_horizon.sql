-- +goose Up
-- The last sequence number drawn when a move between the lanes was first seen.
-- The move ends once every admission that began before has ended.
ALTER TABLE hot_variants DROP COLUMN horizon, ADD COLUMN admitted_before bigint;

-- +goose Down
ALTER TABLE hot_variants DROP COLUMN admitted_before, ADD COLUMN horizon xid8;
