-- +goose Up
-- A failed request is retried at most once: a retry that fails is retried
-- itself. retry_of never changes, so deciding a request writes no entry.
CREATE UNIQUE INDEX reservation_requests_retry_idx ON reservation_requests (tenant_id, retry_of) WHERE retry_of IS NOT NULL;

-- +goose Down
DROP INDEX reservation_requests_retry_idx;
