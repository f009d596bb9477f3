package reservationrows

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/audit"
)

const getSQL = `SELECT ` + columns + clockColumn + ` FROM reservations r WHERE r.tenant_id = $1 AND r.reservation_id = $2`

// Get returns one reservation of the tenant, or ErrNotFound. A hold that is
// past its deadline by the database's clock is returned as Expired, with reason
// TTL, even before its expiry is recorded; until then EndedAt is nil. [LockTx]
// returns the row as it is stored.
func Get(ctx context.Context, db audit.Querier, tenantID, reservationID uuid.UUID) (Reservation, error) {
	found, err := collect(ctx, db, toShown, "reservation "+reservationID.String(), getSQL, tenantID, reservationID)
	if err != nil {
		return Reservation{}, err
	}
	if len(found) == 0 {
		return Reservation{}, ErrNotFound
	}
	return found[0], nil
}

const getAllSQL = `
SELECT ` + columns + clockColumn + `
FROM unnest($1::uuid[], $2::uuid[]) AS wanted (tenant_id, reservation_id)
JOIN reservations r USING (tenant_id, reservation_id)`

// GetAll returns the reservations that exist, in any order, each as [Get]
// returns it.
func GetAll(ctx context.Context, db audit.Querier, refs []Ref) ([]Reservation, error) {
	tenants, ids := split(refs)
	return collect(ctx, db, toShown, fmt.Sprintf("%d reservations", len(refs)), getAllSQL, tenants, ids)
}

// HeldMax is how many held reservations of a kind a holder's verbs accept at
// most.
const HeldMax = 10_000

const heldByHolderSQL = `
SELECT ` + columns + `
FROM reservations r
WHERE same_holder(r.tenant_id, r.holder_id, $1, $2) AND r.resource_kind = $3 AND r.ended_at IS NULL
ORDER BY r.reservation_id
LIMIT $4`

// HeldByHolder returns all held reservations of one holder, due or not, without
// locking. More than HeldMax rows are an error, because callers need the
// complete set.
func HeldByHolder(ctx context.Context, db audit.Querier, tenantID uuid.UUID, kind, holderID string) ([]Reservation, error) {
	held, err := collect(ctx, db, toReservation, "held by "+holderID, heldByHolderSQL, tenantID, holderID, kind, HeldMax+1)
	if len(held) > HeldMax {
		return nil, fmt.Errorf("read held by %s: more than %d reservations", holderID, HeldMax)
	}
	return held, err
}

const byHolderSQL = `
SELECT ` + columns + clockColumn + `
FROM reservations r
WHERE same_holder(r.tenant_id, r.holder_id, $1, $2) AND r.resource_kind = $3 AND r.reservation_id < $4
ORDER BY r.reservation_id DESC
LIMIT $5`

// ByHolder returns reservations of one holder in any status, newest first: up
// to limit of those made before the reservation with the id before (uuid.Max
// for all). They are as [Get] returns them, by one reading of the clock.
func ByHolder(ctx context.Context, db audit.Querier, tenantID uuid.UUID, kind, holderID string, before uuid.UUID, limit int) ([]Reservation, error) {
	return collect(ctx, db, toShown, "reservations of "+holderID, byHolderSQL, tenantID, holderID, kind, before, limit)
}

func collect(ctx context.Context, db audit.Querier, to pgx.RowToFunc[Reservation], what, sql string, args ...any) ([]Reservation, error) {
	rows, _ := db.Query(ctx, sql, args...)
	rs, err := pgx.CollectRows(rows, to)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", what, err)
	}
	return rs, nil
}
