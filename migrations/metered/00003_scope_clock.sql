-- +goose Up
-- By how many microseconds a scope's own clock is ahead of the database's clock,
-- because that was set back. Times of a scope only grow. Without this column all
-- its entries would count until the database's clock has caught up.
ALTER TABLE budget_scopes
    ADD COLUMN ahead bigint NOT NULL DEFAULT 0,
    ADD CONSTRAINT budget_scopes_ahead_not_behind CHECK (ahead >= 0);

-- +goose Down
ALTER TABLE budget_scopes DROP COLUMN ahead;
