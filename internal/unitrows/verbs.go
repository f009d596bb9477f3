package unitrows

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgconn"
)

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

// Reserve reserves those of the named units of the block that are active, and
// returns how many.
func Reserve(ctx context.Context, db Executor, block Block, unitIDs []string, reservationID uuid.UUID) (int64, error) {
	return exec(ctx, db, "reserve", reserveSQL, block, unitIDs, reservationID)
}

const releaseSQL = lockNamed + `
SET status = 'active', reservation_id = NULL
FROM locked
WHERE p.tenant_id = locked.tenant_id AND p.block = locked.block AND p.unit_id = locked.unit_id
  AND CASE WHEN p.reservation_id = $4 THEN p.status = 'pending_inactive' END`

// Release gives back those of the named units that the reservation owns, and
// returns how many.
func Release(ctx context.Context, db Executor, block Block, unitIDs []string, reservationID uuid.UUID) (int64, error) {
	return exec(ctx, db, "release", releaseSQL, block, unitIDs, reservationID)
}

const finalizeSQL = lockNamed + `
SET status = 'inactive'
FROM locked
WHERE p.tenant_id = locked.tenant_id AND p.block = locked.block AND p.unit_id = locked.unit_id
  AND CASE WHEN p.reservation_id = $4 THEN p.status = 'pending_inactive' END`

// Finalize takes those of the named units that the reservation owns for good,
// and returns how many.
func Finalize(ctx context.Context, db Executor, block Block, unitIDs []string, reservationID uuid.UUID) (int64, error) {
	return exec(ctx, db, "finalize", finalizeSQL, block, unitIDs, reservationID)
}

// Executor is a pool, a connection or a transaction.
type Executor interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

func exec(ctx context.Context, db Executor, verb, sql string, block Block, unitIDs []string, reservationID uuid.UUID) (int64, error) {
	tag, err := db.Exec(ctx, sql, block.TenantID, block.Block, unitIDs, reservationID)
	if err != nil {
		return 0, fmt.Errorf("unit: %s %d units of block %s: %w", verb, len(unitIDs), block.Block, err)
	}
	return tag.RowsAffected(), nil
}
