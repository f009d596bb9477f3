-- +goose Up
-- token: who adds units of the variant to a cart needs an admission token, if metered commands are on.
ALTER TABLE inventory_stocks
ADD COLUMN admission text NOT NULL DEFAULT 'open' CONSTRAINT inventory_stocks_admission_known CHECK (admission IN ('open', 'token'));

-- +goose Down
ALTER TABLE inventory_stocks DROP COLUMN admission;
