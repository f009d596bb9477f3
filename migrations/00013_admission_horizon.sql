-- +goose Up
-- A low-water mark waits only for admissions, which are known by their advisory
-- locks, so no next mark is stored. Each hot variant has its own slot, so there
-- may be many slots.
ALTER TABLE lane_slots
    DROP COLUMN next_low_water,
    DROP COLUMN next_horizon,
    DROP CONSTRAINT lane_slots_slot_range,
    ADD CONSTRAINT lane_slots_slot_range CHECK (slot >= -1);

-- +goose Down
ALTER TABLE lane_slots
    ADD COLUMN next_low_water bigint NOT NULL DEFAULT 0,
    ADD COLUMN next_horizon xid8,
    DROP CONSTRAINT lane_slots_slot_range,
    ADD CONSTRAINT lane_slots_slot_range CHECK (slot BETWEEN -1 AND 1023) NOT VALID;
