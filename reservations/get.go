package reservations

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/audit"
)

const getSQL = `SELECT ` + columns + ` FROM reservations r WHERE r.tenant_id = $1 AND r.reservation_id = $2`

// Get returns one reservation of the tenant, or ErrNotFound.
func Get(ctx context.Context, db audit.Querier, tenantID, reservationID uuid.UUID) (Reservation, error) {
	rows, err := db.Query(ctx, getSQL, tenantID, reservationID)
	if err != nil {
		return Reservation{}, fmt.Errorf("get reservation %s: %w", reservationID, err)
	}
	r, err := pgx.CollectExactlyOneRow(rows, toReservation)
	if errors.Is(err, pgx.ErrNoRows) {
		return Reservation{}, ErrNotFound
	}
	if err != nil {
		return Reservation{}, fmt.Errorf("get reservation %s: %w", reservationID, err)
	}
	return r, nil
}

// HeldMax is how many reservations one holder may hold of a kind for its verbs to work on; HolderMax how many of them are
// shown.
const (
	HeldMax   = 10_000
	HolderMax = 1000
)

// Statements that look holders up say "held" as ended_at IS NULL: status = 'held', which a CHECK makes the same, would
// open reservations_held_idx to them, and with it all the holds of a hot resource.
const heldByHolderSQL = `
SELECT ` + columns + `
FROM reservations r
WHERE r.tenant_id = $1 AND r.holder_id = $2 AND r.resource_kind = $3 AND r.ended_at IS NULL
ORDER BY r.reservation_id
LIMIT $4`

// HeldByHolder returns all that is held for one holder, due or not, without locking. Whoever works on the whole must have
// the whole, so more than HeldMax rows are an error.
func HeldByHolder(ctx context.Context, db audit.Querier, tenantID uuid.UUID, kind, holderID string) ([]Reservation, error) {
	held, err := collect(ctx, db, "held by "+holderID, heldByHolderSQL, tenantID, holderID, kind, HeldMax+1)
	if len(held) > HeldMax {
		return nil, fmt.Errorf("read held by %s: more than %d reservations", holderID, HeldMax)
	}
	return held, err
}

const byHolderSQL = `
SELECT ` + columns + `
FROM reservations r
WHERE r.tenant_id = $1 AND r.holder_id = $2 AND r.resource_kind = $3
ORDER BY r.reservation_id DESC
LIMIT $4`

// ByHolder returns the newest reservations of one holder in any status, newest first; at most HolderMax rows.
func ByHolder(ctx context.Context, db audit.Querier, tenantID uuid.UUID, kind, holderID string) ([]Reservation, error) {
	return collect(ctx, db, "reservations of "+holderID, byHolderSQL, tenantID, holderID, kind, HolderMax)
}

// dueSQL asks the clock in a sub-select, which makes it one value that bounds the index scan: asked for each row, it would
// be asked for all that is held. ended_at IS NULL is the predicate of reservations_due_idx.
const dueSQL = `
SELECT ` + columns + `
FROM reservations r
WHERE r.ended_at IS NULL AND r.status = 'held' AND r.expires_at <= (SELECT clock_timestamp()) AND r.resource_kind = $1
ORDER BY r.expires_at
LIMIT $2`

// Due returns up to limit reservations of a kind that are past their deadline, the longest due first, without locking.
func Due(ctx context.Context, db audit.Querier, kind string, limit int) ([]Reservation, error) {
	return collect(ctx, db, "due "+kind, dueSQL, kind, limit)
}

const dueOfKeySQL = `
SELECT ` + columns + `
FROM reservations r
WHERE r.tenant_id = $1 AND r.resource_kind = $2 AND r.resource_key = $3 AND r.status = 'held' AND r.expires_at <= $4
ORDER BY r.expires_at
LIMIT $5`

// DueOfKey is Due for one resource, at a given reading of the database's clock.
func DueOfKey(ctx context.Context, db audit.Querier, tenantID uuid.UUID, kind, key string, now time.Time, limit int) ([]Reservation, error) {
	return collect(ctx, db, "due "+key, dueOfKeySQL, tenantID, kind, key, now, limit)
}

func collect(ctx context.Context, db audit.Querier, what, sql string, args ...any) ([]Reservation, error) {
	rows, err := db.Query(ctx, sql, args...)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", what, err)
	}
	rs, err := pgx.CollectRows(rows, toReservation)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", what, err)
	}
	return rs, nil
}
