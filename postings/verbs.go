package postings

import (
	"context"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/internal/unitrows"
)

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
// Errors, before anything is changed: *InvalidError for more than 1,000 ids,
// for an id that is given twice or has a NUL or invalid UTF-8, and for the zero
// reservation id, tenant or block. No ids are no error: the count is 0.
func Reserve(ctx context.Context, pool *pgxpool.Pool, block Block, unitIDs []string, reservationID uuid.UUID) (int64, error) {
	if err := validate(block, unitIDs, reservationID); err != nil {
		return 0, err
	}
	return unitrows.Reserve(ctx, pool, unitrows.Block(block), unitIDs, reservationID)
}

// ReserveTx is Reserve in the caller's transaction. If it reserves too few, the
// caller may roll back instead of calling ReleaseTx. It is correct at READ
// COMMITTED; above, Postgres may require the transaction to be repeated
// (SQLSTATE 40001).
func ReserveTx(ctx context.Context, tx pgx.Tx, block Block, unitIDs []string, reservationID uuid.UUID) (int64, error) {
	if err := validate(block, unitIDs, reservationID); err != nil {
		return 0, err
	}
	return unitrows.Reserve(ctx, tx, unitrows.Block(block), unitIDs, reservationID)
}

// Release gives back the named units that the reservation owns, in one
// statement. It returns how many it released. The count means:
//
//   - len(unitIDs): all of them are active again.
//   - fewer: the others were not owned by the reservation, or are inactive. A
//     repeated call returns 0, because a released unit has no owner.
//
// The locks and the errors are those of Reserve.
func Release(ctx context.Context, pool *pgxpool.Pool, block Block, unitIDs []string, reservationID uuid.UUID) (int64, error) {
	if err := validate(block, unitIDs, reservationID); err != nil {
		return 0, err
	}
	return unitrows.Release(ctx, pool, unitrows.Block(block), unitIDs, reservationID)
}

// ReleaseTx is Release in the caller's transaction; see ReserveTx.
func ReleaseTx(ctx context.Context, tx pgx.Tx, block Block, unitIDs []string, reservationID uuid.UUID) (int64, error) {
	if err := validate(block, unitIDs, reservationID); err != nil {
		return 0, err
	}
	return unitrows.Release(ctx, tx, unitrows.Block(block), unitIDs, reservationID)
}

// Finalize takes the named units that the reservation owns for good, in one
// statement. It returns how many it finalized. The count means:
//
//   - len(unitIDs): all of them are inactive.
//   - fewer: [CountOwned] distinguishes units that an earlier call of the same
//     reservation has finalized, which need nothing, from units that it does
//     not own.
//
// The locks and the errors are those of Reserve.
func Finalize(ctx context.Context, pool *pgxpool.Pool, block Block, unitIDs []string, reservationID uuid.UUID) (int64, error) {
	if err := validate(block, unitIDs, reservationID); err != nil {
		return 0, err
	}
	return unitrows.Finalize(ctx, pool, unitrows.Block(block), unitIDs, reservationID)
}

// FinalizeTx is Finalize in the caller's transaction; see ReserveTx.
func FinalizeTx(ctx context.Context, tx pgx.Tx, block Block, unitIDs []string, reservationID uuid.UUID) (int64, error) {
	if err := validate(block, unitIDs, reservationID); err != nil {
		return 0, err
	}
	return unitrows.Finalize(ctx, tx, unitrows.Block(block), unitIDs, reservationID)
}
