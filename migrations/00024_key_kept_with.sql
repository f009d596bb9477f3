-- +goose Up
-- kept_with is the checkout that the call began, if it began one. Such a key is
-- deleted with its checkout, and every other one by its age.
ALTER TABLE idempotency_keys ADD COLUMN kept_with uuid;

DROP INDEX idempotency_keys_created_idx;

CREATE INDEX idempotency_keys_created_idx ON idempotency_keys (created_at) WHERE kept_with IS NULL;

CREATE INDEX idempotency_keys_kept_idx ON idempotency_keys (tenant_id, kept_with) WHERE kept_with IS NOT NULL;

-- +goose Down
DROP INDEX idempotency_keys_kept_idx;

DROP INDEX idempotency_keys_created_idx;

CREATE INDEX idempotency_keys_created_idx ON idempotency_keys (created_at);

ALTER TABLE idempotency_keys DROP COLUMN kept_with;
