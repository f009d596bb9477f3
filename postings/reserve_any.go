package postings

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/internal/unitrows"
)

// Any selects units of a block by their number.
type Any struct {
	// Count is how many units are wanted, 1 to 1,000.
	Count int
	// Contiguous asks for neighbours: units with consecutive positions.
	Contiguous bool
}

const lockFirstSQL = `
SELECT p.unit_id
FROM postings p
WHERE p.tenant_id = $1 AND p.block = $2 AND p.status = 'active'
ORDER BY p.position, p.unit_id
LIMIT $3
FOR NO KEY UPDATE`

const lockFirstFreeSQL = lockFirstSQL + ` SKIP LOCKED`

const lockRunSQL = `
SELECT p.unit_id
FROM postings p
WHERE p.tenant_id = $1 AND p.block = $2 AND p.status = 'active' AND p.position BETWEEN $4 AND $4 + $3 - 1
ORDER BY p.position, p.unit_id
FOR NO KEY UPDATE`

const lockRunFreeSQL = lockRunSQL + ` SKIP LOCKED`

// ReserveAny reserves Count units of the block for the reservation, all or
// none, and returns their ids in the order of their positions; none if the
// block does not have as many. It takes the units with the lowest positions
// that no other transaction has locked. Only if there are too few of these, it
// waits for locked units, in the order of their positions: a caller is never
// refused because another transaction has locked units that it then gives back.
//
// Errors: *InvalidError for a Count out of range, and for the zero reservation
// id, tenant or block.
func ReserveAny(ctx context.Context, pool *pgxpool.Pool, block Block, wanted Any, reservationID uuid.UUID) (unitIDs []string, err error) {
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		unitIDs, err = ReserveAnyTx(ctx, tx, block, wanted, reservationID)
		return err
	})
	return unitIDs, err
}

// ReserveAnyTx is ReserveAny in the caller's transaction, which must be READ
// COMMITTED: at a higher level units that were given back since it began are
// not seen.
func ReserveAnyTx(ctx context.Context, tx pgx.Tx, block Block, wanted Any, reservationID uuid.UUID) ([]string, error) {
	if wanted.Count < 1 || wanted.Count > unitrows.UnitsMax {
		return nil, &InvalidError{Field: "count", Message: fmt.Sprintf("must be between 1 and %d", unitrows.UnitsMax)}
	}
	if err := validate(block, nil, reservationID); err != nil {
		return nil, err
	}
	unitIDs, err := lockFree(ctx, tx, block, wanted)
	for unitIDs == nil && err == nil {
		// Of the units that it waits for, some may be taken, while other units
		// are given back. The next try sees those.
		first, found, findErr := findRun(ctx, tx, block, wanted, 1)
		if findErr != nil || !found {
			return nil, findErr
		}
		unitIDs, err = lockAll(ctx, tx, block, wanted, first, false)
	}
	if err != nil {
		return nil, err
	}
	b := &pgx.Batch{}
	unitrows.QueueReserve(b, []unitrows.Claim{{Block: unitrows.Block(block), ReservationID: reservationID, UnitIDs: unitIDs}})
	if err := tx.SendBatch(ctx, b).Close(); err != nil {
		return nil, err
	}
	return unitIDs, nil
}

// lockFree locks the first wanted units that no other transaction has locked,
// or returns nil.
func lockFree(ctx context.Context, tx pgx.Tx, block Block, wanted Any) ([]string, error) {
	if !wanted.Contiguous {
		return lockAll(ctx, tx, block, wanted, 1, true)
	}
	for from := int64(1); ; {
		first, found, err := findRun(ctx, tx, block, wanted, from)
		if err != nil || !found {
			return nil, err
		}
		unitIDs, err := lockAll(ctx, tx, block, wanted, first, true)
		if unitIDs != nil || err != nil {
			return unitIDs, err
		}
		from = first + 1
	}
}

// errTooFew rolls back the locks of a try that found too few units.
var errTooFew = errors.New("too few units")

// lockAll locks the wanted units, in the order of their positions: the first of
// the block, or the neighbours from the position first on. It returns nil if
// one of them is taken, or locked by another transaction where free is set, and
// then keeps no lock: to wait for a unit with a lock on a later one could
// deadlock.
func lockAll(ctx context.Context, tx pgx.Tx, block Block, wanted Any, first int64, free bool) (unitIDs []string, err error) {
	args := []any{block.TenantID, block.Block, wanted.Count}
	sql := lockFirstSQL
	switch {
	case wanted.Contiguous && free:
		sql, args = lockRunFreeSQL, append(args, first)
	case wanted.Contiguous:
		sql, args = lockRunSQL, append(args, first)
	case free:
		sql = lockFirstFreeSQL
	}
	err = pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
		rows, _ := tx.Query(ctx, sql, args...)
		unitIDs, err = pgx.CollectRows(rows, pgx.RowTo[string])
		if err == nil && len(unitIDs) != wanted.Count {
			err = errTooFew
		}
		return err
	})
	if errors.Is(err, errTooFew) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("postings: lock units of block %s: %w", block.Block, err)
	}
	return unitIDs, nil
}

// findPage is how many active units findRun reads at a time.
const findPage = 1000

// findRun returns the position of the first of the wanted units, from the given
// position on, locked or not, as far as committed transactions have left them.
func findRun(ctx context.Context, tx pgx.Tx, block Block, wanted Any, from int64) (first int64, found bool, err error) {
	length, last := 0, unitrows.Unit{Position: from}
	for {
		page, err := unitrows.ListActive(ctx, tx, unitrows.Block(block), last, max(findPage, wanted.Count))
		if err != nil || len(page) == 0 {
			return 0, false, err
		}
		for _, u := range page {
			if length == 0 || wanted.Contiguous && u.Position != last.Position+1 {
				first, length = u.Position, 0
			}
			length, last = length+1, u
			if length == wanted.Count {
				return first, true, nil
			}
		}
	}
}
