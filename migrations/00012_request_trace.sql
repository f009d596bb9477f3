-- +goose Up
-- The W3C trace context of a sampled call. The traces of its decision and of
-- later reads are linked to it. For all other requests it is null.
ALTER TABLE reservation_requests ADD COLUMN trace_parent text;

-- +goose Down
ALTER TABLE reservation_requests DROP COLUMN trace_parent;
