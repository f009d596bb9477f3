-- +goose Up
-- For the search of variants by the beginning of their ids. The order of the
-- primary key is that of the database's collation, in which the ids with one
-- beginning need not be neighbours. The planner uses this index for no other
-- query, because their comparisons have another collation.
CREATE INDEX inventory_stocks_prefix_idx ON inventory_stocks (tenant_id, variant_id COLLATE "C");

-- +goose Down
DROP INDEX inventory_stocks_prefix_idx;
