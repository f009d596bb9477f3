-- +goose Up
-- token: adding units of the variant to a cart requires an admission token, if
-- metered commands are on.
ALTER TABLE inventory_stocks
ADD COLUMN admission text NOT NULL DEFAULT 'open' CONSTRAINT inventory_stocks_admission_known CHECK (admission IN ('open', 'token'));

-- Every API process that cannot check tokens queries whether such a variant
-- exists.
CREATE INDEX inventory_stocks_guarded_idx ON inventory_stocks (tenant_id, variant_id) WHERE admission <> 'open';

-- +goose Down
DROP INDEX inventory_stocks_guarded_idx;

ALTER TABLE inventory_stocks DROP COLUMN admission;
