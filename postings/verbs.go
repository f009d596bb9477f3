package postings

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// DB is a pool, or a connection that is in no transaction.
type DB interface {
	Querier
	Begin(ctx context.Context) (pgx.Tx, error)
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

// lockNamed locks the named units of a block in the order of their positions.
// The UPDATE that follows it in the same statement finds them locked. Each unit
// is found by primary key: with a plain condition on the ids the planner could
// read the whole block instead.
const lockNamed = `
WITH named AS MATERIALIZED (
    SELECT found.unit_id
    FROM unnest($3::text[]) AS wanted (unit_id)
    CROSS JOIN LATERAL (
        SELECT p.unit_id, p.position
        FROM postings p
        WHERE p.tenant_id = $1 AND p.block = $2 AND p.unit_id = wanted.unit_id
        LIMIT 1
    ) found
    ORDER BY found.position, found.unit_id
), locked AS MATERIALIZED (
    SELECT unit.tenant_id, unit.block, unit.unit_id
    FROM named
    CROSS JOIN LATERAL (
        SELECT p.tenant_id, p.block, p.unit_id
        FROM postings p
        WHERE p.tenant_id = $1 AND p.block = $2 AND p.unit_id = named.unit_id
        LIMIT 1
        FOR NO KEY UPDATE
    ) unit
)
UPDATE postings p`

const reserveSQL = lockNamed + `
SET status = 'pending_inactive', reservation_id = $4
FROM locked
WHERE p.tenant_id = locked.tenant_id AND p.block = locked.block AND p.unit_id = locked.unit_id
  AND CASE WHEN p.status = 'active' THEN true END`

// Reserve reserves the named units of a block for the reservation, in one
// statement: each of them that is active becomes pending and is stamped with
// the reservation's id. It returns how many it reserved. Of two calls that name
// the same unit, one reserves it. The count means:
//
//   - len(unitIDs): the reservation owns all of them.
//   - fewer, more than 0: it owns that many. The others were not active, or do
//     not exist. A caller that needs all of them calls Release, which gives
//     back those that were reserved.
//   - 0: nothing has changed. [CountOwned] distinguishes a repeated call, whose
//     units are owned already, from units that another reservation has taken.
//
// It waits for the locks of the units, in the order of their positions.
//
// Errors, before anything is changed: *InvalidError for more than UnitsMax ids,
// for an id that is given twice or has a NUL or invalid UTF-8, and for the zero
// reservation id, tenant or block. No ids are no error: the count is 0.
func Reserve(ctx context.Context, db DB, block Block, unitIDs []string, reservationID uuid.UUID) (int64, error) {
	return exec(ctx, db, "reserve", reserveSQL, block, unitIDs, reservationID)
}

// ReserveTx is Reserve in the caller's transaction. If it reserves too few, the
// caller may roll back instead of calling ReleaseTx. It is correct at READ
// COMMITTED; above, Postgres may require the transaction to be repeated
// (SQLSTATE 40001).
func ReserveTx(ctx context.Context, tx pgx.Tx, block Block, unitIDs []string, reservationID uuid.UUID) (int64, error) {
	return exec(ctx, tx, "reserve", reserveSQL, block, unitIDs, reservationID)
}

const releaseSQL = lockNamed + `
SET status = 'active', reservation_id = NULL
FROM locked
WHERE p.tenant_id = locked.tenant_id AND p.block = locked.block AND p.unit_id = locked.unit_id
  AND CASE WHEN p.reservation_id = $4 THEN p.status = 'pending_inactive' END`

// Release gives back the named units that the reservation owns, in one
// statement. It returns how many it released. The count means:
//
//   - len(unitIDs): all of them are active again.
//   - fewer: the others were not owned by the reservation, or are inactive. A
//     repeated call returns 0, because a released unit has no owner.
//
// The locks and the errors are those of Reserve.
func Release(ctx context.Context, db DB, block Block, unitIDs []string, reservationID uuid.UUID) (int64, error) {
	return exec(ctx, db, "release", releaseSQL, block, unitIDs, reservationID)
}

// ReleaseTx is Release in the caller's transaction; see ReserveTx.
func ReleaseTx(ctx context.Context, tx pgx.Tx, block Block, unitIDs []string, reservationID uuid.UUID) (int64, error) {
	return exec(ctx, tx, "release", releaseSQL, block, unitIDs, reservationID)
}

const finalizeSQL = lockNamed + `
SET status = 'inactive'
FROM locked
WHERE p.tenant_id = locked.tenant_id AND p.block = locked.block AND p.unit_id = locked.unit_id
  AND CASE WHEN p.reservation_id = $4 THEN p.status = 'pending_inactive' END`

// Finalize takes the named units that the reservation owns for good, in one
// statement. It returns how many it finalized. The count means:
//
//   - len(unitIDs): all of them are inactive.
//   - fewer: [CountOwned] distinguishes units that an earlier call of the same
//     reservation has finalized, which need nothing, from units that it does
//     not own.
//
// The locks and the errors are those of Reserve.
func Finalize(ctx context.Context, db DB, block Block, unitIDs []string, reservationID uuid.UUID) (int64, error) {
	return exec(ctx, db, "finalize", finalizeSQL, block, unitIDs, reservationID)
}

// FinalizeTx is Finalize in the caller's transaction; see ReserveTx.
func FinalizeTx(ctx context.Context, tx pgx.Tx, block Block, unitIDs []string, reservationID uuid.UUID) (int64, error) {
	return exec(ctx, tx, "finalize", finalizeSQL, block, unitIDs, reservationID)
}

type executor interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

func exec(ctx context.Context, db executor, verb, sql string, block Block, unitIDs []string, reservationID uuid.UUID) (int64, error) {
	if err := validate(block, unitIDs, reservationID); err != nil {
		return 0, fmt.Errorf("posting: %s: %w", verb, err)
	}
	tag, err := db.Exec(ctx, sql, block.TenantID, block.Block, unitIDs, reservationID)
	if err != nil {
		return 0, fmt.Errorf("posting: %s %d units of block %s: %w", verb, len(unitIDs), block.Block, err)
	}
	return tag.RowsAffected(), nil
}

// Counts is what has become of units that a reservation was to own.
type Counts struct {
	// Active units have no owner.
	Active int64
	// Pending and Inactive units are owned, and were finalized, by the
	// reservation.
	Pending, Inactive int64
	// Others are owned or were finalized by another reservation.
	Others int64
	// Unknown units do not exist in the block.
	Unknown int64
}

const countOwnedSQL = `
SELECT count(*) FILTER (WHERE p.status = 'active') AS active,
       count(*) FILTER (WHERE p.status = 'pending_inactive' AND p.reservation_id = $4) AS pending,
       count(*) FILTER (WHERE p.status = 'inactive' AND p.reservation_id = $4) AS inactive,
       count(*) FILTER (WHERE p.reservation_id <> $4) AS others,
       cardinality($3::text[]) - count(*) AS unknown
FROM unnest($3::text[]) AS wanted (unit_id)
CROSS JOIN LATERAL (
    SELECT u.status, u.reservation_id
    FROM postings u
    WHERE u.tenant_id = $1 AND u.block = $2 AND u.unit_id = wanted.unit_id
    LIMIT 1
) p`

// CountOwned counts the named units by their owner. It locks nothing: another
// transaction may change a unit that is not owned by the reservation at once,
// and units that it owns only by that reservation's own verbs. Errors:
// *InvalidError as for Reserve.
func CountOwned(ctx context.Context, db Querier, block Block, unitIDs []string, reservationID uuid.UUID) (Counts, error) {
	if err := validate(block, unitIDs, reservationID); err != nil {
		return Counts{}, fmt.Errorf("posting: count: %w", err)
	}
	rows, err := db.Query(ctx, countOwnedSQL, block.TenantID, block.Block, unitIDs, reservationID)
	if err != nil {
		return Counts{}, fmt.Errorf("posting: count units of block %s: %w", block.Block, err)
	}
	counts, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[Counts])
	if err != nil {
		return Counts{}, fmt.Errorf("posting: count units of block %s: %w", block.Block, err)
	}
	return counts, nil
}
