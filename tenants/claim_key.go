package tenants

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/telemetry"
)

// Answer is what a call was answered, kept so that the same call sent again is answered the same.
type Answer struct {
	// StatusCode is the HTTP status.
	StatusCode int
	Body       []byte
}

// Outcomes of claiming a key.
var (
	// ErrKeyReused says that the key stands for another call: another method, path or body.
	ErrKeyReused = errors.New("idempotency key was used for another call")
	// ErrKeyNotClaimed says that an answer was to be kept under a key that has no claim, or has its answer already.
	ErrKeyNotClaimed = errors.New("idempotency key is not claimed")
)

// claimAttempts bounds the tries to claim a key that is purged each time between losing to it and reading it.
const claimAttempts = 3

const claimSQL = `
INSERT INTO idempotency_keys (tenant_id, idempotency_key, fingerprint)
VALUES ($1, $2, $3)
ON CONFLICT (tenant_id, idempotency_key) DO NOTHING`

const readClaimSQL = `
SELECT fingerprint, status_code, body
FROM idempotency_keys
WHERE tenant_id = $1 AND idempotency_key = $2`

// ClaimKeyTx claims an idempotency key for the call with that fingerprint. Nil means that the key is the caller's: do
// the work and keep its answer with [KeepAnswerTx], all in tx. An answer means that the work was done before: give it
// again, and do nothing. [ErrKeyReused] means that the key stands for a call with another fingerprint; an
// [*InvalidError], that the key is not 1 to 255 characters without control characters.
//
// While another transaction holds the key it waits, as long as ctx allows: if that one commits, its answer comes back;
// if it rolls back, the key is free and the caller's. A claim that is rolled back leaves nothing. A transaction claims
// one key, before it locks anything else. It is right at every isolation level; above READ COMMITTED a key that was claimed
// since the transaction's first statement is SQLSTATE 40001.
func ClaimKeyTx(ctx context.Context, tx pgx.Tx, tenantID uuid.UUID, key string, fingerprint [32]byte) (_ *Answer, err error) {
	ctx, done := telemetry.Verb(ctx, "tenants.claim_key")
	defer func() { done("", err) }()
	if err := validateText("idempotency_key", key, MaxKeyText); err != nil {
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
		// A statement of its own, because the insert cannot see the row that it lost to.
		kept, err := readClaim(ctx, tx, tenantID, key, fingerprint)
		if errors.Is(err, pgx.ErrNoRows) {
			continue // purged in between: the key is free again
		}
		if err != nil {
			return nil, fmt.Errorf("claim idempotency key %s: %w", key, err)
		}
		return kept, nil
	}
	return nil, fmt.Errorf("claim idempotency key %s: it was purged %d times while being read", key, claimAttempts)
}

// readClaim returns the answer kept under a key that somebody else has claimed.
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
