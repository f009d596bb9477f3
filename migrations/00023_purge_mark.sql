-- +goose Up
-- One row, once a purge has run: requests that were finished before
-- purged_before may be deleted, and rows that belong to them. A retention that
-- is lengthened later does not bring them back.
CREATE TABLE purge_mark (
    mark          integer     NOT NULL DEFAULT 1,
    purged_before timestamptz NOT NULL,
    CONSTRAINT purge_mark_pkey PRIMARY KEY (mark),
    CONSTRAINT purge_mark_alone CHECK (mark = 1)
) WITH (fillfactor = 10);

-- +goose Down
DROP TABLE purge_mark;
