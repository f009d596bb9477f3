-- +goose Up
-- token: who adds units of the variant to a cart needs an admission token, if metered commands are on.
ALTER TABLE inventory_stocks
ADD COLUMN admission text NOT NULL DEFAULT 'open' CONSTRAINT inventory_stocks_admission_known CHECK (admission IN ('open', 'token'));

-- Whether there is any such variant is asked by every API process that could not tell who has a token.
CREATE INDEX inventory_stocks_guarded_idx ON inventory_stocks (tenant_id, variant_id) WHERE admission <> 'open';

-- +goose Down
DROP INDEX inventory_stocks_guarded_idx;

ALTER TABLE inventory_stocks DROP COLUMN admission;
