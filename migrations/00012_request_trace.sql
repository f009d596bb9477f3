-- +goose Up
-- The W3C trace context of a call that was sampled, by which the trace of its decision and of later reads is linked to it.
-- All other requests have none.
ALTER TABLE reservation_requests ADD COLUMN trace_parent text;

-- +goose Down
ALTER TABLE reservation_requests DROP COLUMN trace_parent;
