-- +goose Up
-- By how many microseconds a scope's own clock is ahead of the database's: what that was set back by. A scope's moments grow, so
-- without this everything in it would count until the database's clock has caught up with it.
ALTER TABLE budget_scopes
    ADD COLUMN ahead bigint NOT NULL DEFAULT 0,
    ADD CONSTRAINT budget_scopes_ahead_not_behind CHECK (ahead >= 0);

-- +goose Down
ALTER TABLE budget_scopes DROP COLUMN ahead;
