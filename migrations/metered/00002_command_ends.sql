-- +goose Up
-- How a command's work ended. Its worker writes this once, in the transaction of
-- the work. River completes the job later, and runs it again if the worker dies
-- before that.
ALTER TABLE command_keys
    ADD COLUMN outcome text,
    ADD COLUMN ended_at timestamptz,
    ADD CONSTRAINT command_keys_outcome_known CHECK (outcome IN ('done', 'failed')),
    ADD CONSTRAINT command_keys_ended_with_outcome CHECK ((outcome IS NULL) = (ended_at IS NULL));

-- +goose Down
ALTER TABLE command_keys DROP COLUMN ended_at, DROP COLUMN outcome;
