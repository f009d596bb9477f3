package tenants

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// KeyedCall is a call that has an idempotency key.
type KeyedCall struct {
	TenantID    uuid.UUID
	Key         string
	Fingerprint [32]byte
}

// Validate refuses a key that is not 1 to 255 characters without control characters, with an *InvalidError.
func (c *KeyedCall) Validate() error { return validateText("idempotency_key", c.Key, MaxKeyText) }

// KeptCall is a call with the answer that is kept for it.
type KeptCall struct {
	KeyedCall
	Answer Answer
}

// ErrKeyTaken means that a key of a group was claimed by another transaction meanwhile.
var ErrKeyTaken = errors.New("tenants: an idempotency key was claimed meanwhile")

const readKeptSQL = `
SELECT call.place, k.fingerprint, k.status_code, k.body
FROM unnest($1::uuid[], $2::text[]) WITH ORDINALITY AS call (tenant_id, idempotency_key, place)
JOIN idempotency_keys k ON k.tenant_id = call.tenant_id AND k.idempotency_key = call.idempotency_key
WHERE k.status_code IS NOT NULL`

// QueueKept adds to b what reads which of the calls were answered before, and gives each such answer to kept with the
// call's place, or [ErrKeyReused] where the key stands for another call. It waits for no transaction that has a key, so
// read it under the locks of what the calls work on.
func QueueKept(b *pgx.Batch, calls []KeyedCall, kept func(place int, a Answer, err error)) {
	tenants, keys := make([][16]byte, len(calls)), make([]string, len(calls))
	for i := range calls {
		tenants[i], keys[i] = calls[i].TenantID, calls[i].Key
	}
	b.Queue(readKeptSQL, tenants, keys).Query(func(rows pgx.Rows) error {
		var place int
		var fingerprint []byte
		var a Answer
		_, err := pgx.ForEachRow(rows, []any{&place, &fingerprint, &a.StatusCode, &a.Body}, func() error {
			var reused error
			if !bytes.Equal(fingerprint, calls[place-1].Fingerprint[:]) {
				reused = ErrKeyReused
			}
			kept(place-1, Answer{StatusCode: a.StatusCode, Body: bytes.Clone(a.Body)}, reused)
			return nil
		})
		return err
	})
}

const keepSQL = `
INSERT INTO idempotency_keys (tenant_id, idempotency_key, fingerprint, status_code, body)
SELECT call.tenant_id, call.idempotency_key, call.fingerprint, call.status_code, call.body
FROM unnest($1::uuid[], $2::text[], $3::bytea[], $4::integer[], $5::bytea[]) WITH ORDINALITY
    AS call (tenant_id, idempotency_key, fingerprint, status_code, body, place)
ORDER BY call.place
ON CONFLICT (tenant_id, idempotency_key) DO NOTHING`

// QueueKeep adds to b what claims the keys of the calls, which are distinct, and keeps their answers. It sorts the calls.
// A key that another transaction has is waited for; if that one commits, the batch fails with [ErrKeyTaken].
func QueueKeep(b *pgx.Batch, calls []KeptCall) {
	slices.SortFunc(calls, func(a, b KeptCall) int {
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
	b.Queue(keepSQL, tenants, keys, fingerprints, statuses, bodies).Exec(func(tag pgconn.CommandTag) error {
		if tag.RowsAffected() != int64(n) {
			return fmt.Errorf("keep %d answers: %w", n, ErrKeyTaken)
		}
		return nil
	})
}
