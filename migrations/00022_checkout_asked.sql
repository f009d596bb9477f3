-- +goose Up
-- asked means that a call of the checkout's payment service has ended. A
-- checkout does not time out before that.
ALTER TABLE checkouts ADD COLUMN asked boolean NOT NULL DEFAULT false;

-- +goose Down
ALTER TABLE checkouts DROP COLUMN asked;
