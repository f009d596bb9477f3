-- +goose Up
-- For the search of variants by the beginning of their ids. The order of the
-- primary key is that of the database's collation, in which the ids with one
-- beginning need not be neighbours.
CREATE INDEX inventory_stocks_prefix_idx ON inventory_stocks (tenant_id, variant_id text_pattern_ops);

-- +goose Down
DROP INDEX inventory_stocks_prefix_idx;
