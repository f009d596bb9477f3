package reservationrows

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/pg"
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

// Statements that read by holder test for held with ended_at IS NULL. A CHECK
// makes status = 'held' equivalent, but with that condition the planner could
// use reservations_held_idx and read all holds of a hot resource.
const heldByHolderSQL = `
SELECT ` + columns + `
FROM reservations r
WHERE r.tenant_id = $1 AND r.holder_id = $2 AND r.resource_kind = $3 AND r.ended_at IS NULL
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
WHERE r.tenant_id = $1 AND r.holder_id = $2 AND r.resource_kind = $3 AND r.reservation_id < $4
ORDER BY r.reservation_id DESC
LIMIT $5`

// ByHolder returns reservations of one holder in any status, newest first: up
// to limit of those made before the reservation with the id before (uuid.Max
// for all). They are as [Get] returns them, by one reading of the clock.
func ByHolder(ctx context.Context, db audit.Querier, tenantID uuid.UUID, kind, holderID string, before uuid.UUID, limit int) ([]Reservation, error) {
	return collect(ctx, db, toShown, "reservations of "+holderID, byHolderSQL, tenantID, holderID, kind, before, limit)
}

// dueSQL reads the clock in a sub-select, which makes it one value that bounds
// the index scan; a reading per row would scan all that is held. ended_at IS
// NULL is the predicate of reservations_due_idx. The excluded resources are
// hashed once and compared with each row.
const dueSQL = `
SELECT ` + columns + `
FROM reservations r
WHERE r.ended_at IS NULL AND r.status = 'held' AND r.expires_at <= (SELECT clock_timestamp()) AND r.resource_kind = $1
  AND r.expires_at >= $3
  AND (r.tenant_id, r.resource_key) NOT IN (SELECT e.tenant_id, e.resource_key FROM unnest($4::uuid[], $5::text[]) AS e (tenant_id, resource_key))
  AND r.tenant_id <> ALL ($6::uuid[])
ORDER BY r.expires_at
LIMIT $2`

// Resource names a resource of a kind.
type Resource struct {
	TenantID    uuid.UUID
	ResourceKey string
}

// DueQuery selects the reservations past their deadline that are read next.
type DueQuery struct {
	Kind string
	// From is the earliest deadline, zero for any. A caller that continues at
	// the last deadline it read does not read again what it excluded before.
	From time.Time
	// Except are resources whose reservations are excluded.
	Except []Resource
	// ExceptTenants are tenants whose reservations are all excluded.
	ExceptTenants []uuid.UUID
}

// Due returns up to limit reservations that are past their deadline, the
// longest due first, without locking. It reads about limit rows, however many
// are due.
func Due(ctx context.Context, db pg.Batcher, query DueQuery, limit int) ([]Reservation, error) {
	tenants, keys := make([][16]byte, len(query.Except)), make([]string, len(query.Except))
	for i, e := range query.Except {
		tenants[i], keys[i] = e.TenantID, e.ResourceKey
	}
	all := make([][16]byte, len(query.ExceptTenants))
	for i, id := range query.ExceptTenants {
		all[i] = id
	}
	due, err := pg.ReadInOrder(ctx, db, toReservation, dueSQL, query.Kind, limit, query.From, tenants, keys, all)
	if err != nil {
		return nil, fmt.Errorf("read due %s: %w", query.Kind, err)
	}
	return due, nil
}

const dueOfKeySQL = `
SELECT ` + columns + `
FROM reservations r
WHERE r.tenant_id = $1 AND r.resource_kind = $2 AND r.resource_key = $3 AND r.status = 'held' AND r.expires_at <= $4
ORDER BY r.expires_at
LIMIT $5`

// DueOfKey is Due for one resource, at a given reading of the database's clock.
func DueOfKey(ctx context.Context, db audit.Querier, tenantID uuid.UUID, kind, key string, now time.Time, limit int) ([]Reservation, error) {
	return collect(ctx, db, toReservation, "due "+key, dueOfKeySQL, tenantID, kind, key, now, limit)
}

// dueOfWindowSQL is dueOfKeySQL for one window of the key, or for all windows,
// by the present reading of the clock.
const dueOfWindowSQL = `
SELECT ` + columns + `
FROM reservations r
WHERE r.tenant_id = $1 AND r.resource_kind = $2 AND r.resource_key = $3 AND r.status = 'held'
  AND r.expires_at <= (SELECT clock_timestamp()) AND ($4 OR coalesce(r.resource_window, '') = $5)
ORDER BY r.expires_at
LIMIT $6`

// DueOfWindow is Due for one window of a resource, or for all its windows.
func DueOfWindow(ctx context.Context, db audit.Querier, tenantID uuid.UUID, kind, key string, allWindows bool, window string, limit int) ([]Reservation, error) {
	return collect(ctx, db, toReservation, "due "+key, dueOfWindowSQL, tenantID, kind, key, allWindows, window, limit)
}

func collect(ctx context.Context, db audit.Querier, to pgx.RowToFunc[Reservation], what, sql string, args ...any) ([]Reservation, error) {
	rows, _ := db.Query(ctx, sql, args...)
	rs, err := pgx.CollectRows(rows, to)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", what, err)
	}
	return rs, nil
}
