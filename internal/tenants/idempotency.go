package tenants

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/holdfast/holdfast/internal/invalid"
	"github.com/holdfast/holdfast/internal/pg"
	"github.com/holdfast/holdfast/internal/telemetry"
)

// Answer is the answer of a call, stored so that the same call sent again
// receives it again.
type Answer struct {
	// StatusCode is the HTTP status.
	StatusCode int
	Body       []byte
}

// Outcomes of claiming a key.
var (
	// ErrKeyReused means that the key belongs to another call: another method,
	// path or body.
	ErrKeyReused = errors.New("idempotency key was used for another call")
	// ErrKeyNotClaimed means that an answer cannot be stored under the key: it
	// has no claim, or an answer already.
	ErrKeyNotClaimed = errors.New("idempotency key is not claimed")
)

// claimAttempts bounds the attempts to claim a key that is purged each time
// between the lost insert and the read.
const claimAttempts = 3

const claimSQL = `
INSERT INTO idempotency_keys (tenant_id, idempotency_key, fingerprint)
VALUES ($1, $2, $3)
ON CONFLICT (tenant_id, idempotency_key) DO NOTHING`

const readClaimSQL = `
SELECT fingerprint, status_code, body
FROM idempotency_keys
WHERE tenant_id = $1 AND idempotency_key = $2`

// ClaimKeyTx claims an idempotency key for the call with that fingerprint. Nil
// means that the caller has the key: it does the work and stores its answer
// with [StoreAnswerTx], all in tx. An answer means that the work was done
// before: the caller returns the answer and does nothing. [ErrKeyReused] means
// that the key belongs to a call with another fingerprint. An [*InvalidError]
// means that the key is not 1 to 255 characters without control characters.
//
// If another transaction has the key, ClaimKeyTx waits for it, until ctx ends.
// If the other transaction commits, its answer is returned; if it rolls back,
// the caller gets the key. A rolled-back claim leaves nothing. A transaction
// claims one key, before it locks anything else.
//
// It is correct at every isolation level; above READ COMMITTED a key that was
// claimed since the transaction's first statement is SQLSTATE 40001.
func ClaimKeyTx(ctx context.Context, tx pgx.Tx, tenantID uuid.UUID, key string, fingerprint [32]byte) (_ *Answer, err error) {
	ctx, done := telemetry.Verb(ctx, "tenants.claim_key")
	defer func() { done("", err) }()
	if err := invalid.Check("idempotency_key", key, MaxKeyText); err != nil {
		return nil, err
	}
	for range claimAttempts {
		tag, err := tx.Exec(ctx, claimSQL, tenantID, key, fingerprint[:])
		if err != nil {
			return nil, fmt.Errorf("claim idempotency key %s: %w", key, err)
		}
		if tag.RowsAffected() == 1 {
			return nil, nil
		}
		// A separate statement is needed, because the insert cannot see the row
		// that it conflicted with.
		stored, err := readClaim(ctx, tx, tenantID, key, fingerprint)
		if errors.Is(err, pgx.ErrNoRows) {
			continue // purged in between: the key is free again
		}
		if err != nil {
			return nil, fmt.Errorf("claim idempotency key %s: %w", key, err)
		}
		return stored, nil
	}
	return nil, fmt.Errorf("claim idempotency key %s: it was purged %d times while being read", key, claimAttempts)
}

// readClaim returns the answer stored under a key that another call has
// claimed.
func readClaim(ctx context.Context, tx pgx.Tx, tenantID uuid.UUID, key string, fingerprint [32]byte) (*Answer, error) {
	var (
		claimed []byte
		status  *int
		body    []byte
	)
	if err := tx.QueryRow(ctx, readClaimSQL, tenantID, key).Scan(&claimed, &status, &body); err != nil {
		return nil, err
	}
	if !bytes.Equal(claimed, fingerprint[:]) {
		return nil, ErrKeyReused
	}
	if status == nil {
		return nil, errors.New("it was claimed and committed without an answer")
	}
	return &Answer{StatusCode: *status, Body: body}, nil
}

const storeAnswerSQL = `
UPDATE idempotency_keys
SET status_code = $3, body = $4
WHERE tenant_id = $1 AND idempotency_key = $2 AND status_code IS NULL`

// StoreAnswerTx stores the answer of the call under the key that the same
// transaction claimed. After the commit every later claim of the key returns
// it, until it is purged. The error is [ErrKeyNotClaimed] if there is no claim,
// or already an answer. It is correct at every isolation level.
func StoreAnswerTx(ctx context.Context, tx pgx.Tx, tenantID uuid.UUID, key string, answer Answer) error {
	tag, err := tx.Exec(ctx, storeAnswerSQL, tenantID, key, answer.StatusCode, answer.Body)
	if err == nil && tag.RowsAffected() != 1 {
		err = ErrKeyNotClaimed
	}
	if err != nil {
		return fmt.Errorf("store answer for idempotency key %s: %w", key, err)
	}
	return nil
}

const forgetClaimSQL = `
DELETE FROM idempotency_keys
WHERE tenant_id = $1 AND idempotency_key = $2 AND status_code IS NULL`

// ForgetClaimTx removes the claim of a key that the same transaction has made.
// It is for a call that is refused although its transaction is committed, so
// that the key can be used again. It is correct at every isolation level.
func ForgetClaimTx(ctx context.Context, tx pgx.Tx, tenantID uuid.UUID, key string) error {
	if _, err := tx.Exec(ctx, forgetClaimSQL, tenantID, key); err != nil {
		return fmt.Errorf("forget the claim of idempotency key %s: %w", key, err)
	}
	return nil
}

// KeyedCall is a call that has an idempotency key.
type KeyedCall struct {
	TenantID    uuid.UUID
	Key         string
	Fingerprint [32]byte
}

// Validate refuses a key that is not 1 to 255 characters without control
// characters, with an *InvalidError.
func (c *KeyedCall) Validate() error { return invalid.Check("idempotency_key", c.Key, MaxKeyText) }

// AnsweredCall is a call with the answer that is stored for it.
type AnsweredCall struct {
	KeyedCall
	Answer Answer
}

// ErrKeyTaken means that another transaction has claimed a key of a group
// meanwhile.
var ErrKeyTaken = errors.New("tenants: an idempotency key was claimed meanwhile")

const readAnswersSQL = `
SELECT call.place - 1, k.fingerprint, k.status_code, k.body
FROM unnest($1::uuid[], $2::text[]) WITH ORDINALITY AS call (tenant_id, idempotency_key, place)
JOIN idempotency_keys k ON k.tenant_id = call.tenant_id AND k.idempotency_key = call.idempotency_key
WHERE k.status_code IS NOT NULL`

// StoredAnswer is the answer of a call that was made before.
type StoredAnswer struct {
	// Index is that of the call.
	Index  int
	Answer Answer
	// Err is [ErrKeyReused] if the key belongs to another call.
	Err error
}

// QueueReadAnswers adds to b a statement that reads which of the calls were
// answered before, and returns their answers once the batch is sent. It does
// not wait for a transaction that has a key, so the caller reads it under the
// locks of the rows that the calls change.
func QueueReadAnswers(b *pgx.Batch, calls []KeyedCall) *[]StoredAnswer {
	tenants, keys := make([][16]byte, len(calls)), make([]string, len(calls))
	for i := range calls {
		tenants[i], keys[i] = calls[i].TenantID, calls[i].Key
	}
	return pg.Collect(b, func(row pgx.CollectableRow) (stored StoredAnswer, err error) {
		var fingerprint []byte
		err = row.Scan(&stored.Index, &fingerprint, &stored.Answer.StatusCode, &stored.Answer.Body)
		if err == nil && !bytes.Equal(fingerprint, calls[stored.Index].Fingerprint[:]) {
			stored.Err = ErrKeyReused
		}
		return stored, err
	}, readAnswersSQL, tenants, keys)
}

const storeAnswersSQL = `
INSERT INTO idempotency_keys (tenant_id, idempotency_key, fingerprint, status_code, body)
SELECT call.tenant_id, call.idempotency_key, call.fingerprint, call.status_code, call.body
FROM unnest($1::uuid[], $2::text[], $3::bytea[], $4::integer[], $5::bytea[]) WITH ORDINALITY
    AS call (tenant_id, idempotency_key, fingerprint, status_code, body, place)
ORDER BY call.place
ON CONFLICT (tenant_id, idempotency_key) DO NOTHING`

// QueueStoreAnswers adds to b a statement that claims the keys of the calls,
// which are distinct, and stores their answers. It sorts the calls. It waits
// for a key that another transaction has; if that one commits, the batch fails
// with [ErrKeyTaken].
func QueueStoreAnswers(b *pgx.Batch, calls []AnsweredCall) {
	slices.SortFunc(calls, func(a, b AnsweredCall) int {
		return cmp.Or(slices.Compare(a.TenantID[:], b.TenantID[:]), cmp.Compare(a.Key, b.Key))
	})
	n := len(calls)
	tenants, keys, fingerprints := make([][16]byte, n), make([]string, n), make([][]byte, n)
	statuses, bodies := make([]int32, n), make([][]byte, n)
	for i := range calls {
		c := &calls[i]
		tenants[i], keys[i], fingerprints[i] = c.TenantID, c.Key, c.Fingerprint[:]
		statuses[i], bodies[i] = int32(c.Answer.StatusCode), c.Answer.Body
	}
	b.Queue(storeAnswersSQL, tenants, keys, fingerprints, statuses, bodies).Exec(func(tag pgconn.CommandTag) error {
		if tag.RowsAffected() != int64(n) {
			return fmt.Errorf("store %d answers: %w", n, ErrKeyTaken)
		}
		return nil
	})
}
