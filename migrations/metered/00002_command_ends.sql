-- +goose Up
-- How a command's work ended, written by its worker in the transaction of the work, once: River completes jobs later and runs
-- one again if it dies before that.
ALTER TABLE command_keys
    ADD COLUMN outcome text,
    ADD COLUMN ended_at timestamptz,
    ADD CONSTRAINT command_keys_outcome_known CHECK (outcome IN ('done', 'failed')),
    ADD CONSTRAINT command_keys_ended_with_outcome CHECK ((outcome IS NULL) = (ended_at IS NULL));

-- +goose Down
ALTER TABLE command_keys DROP COLUMN ended_at, DROP COLUMN outcome;
