package baselines

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	lockSeats = `
SELECT unit_id
FROM baseline.units
WHERE tenant_id = $1 AND variant_id = $2 AND hold_id IS NULL
ORDER BY unit_id
LIMIT $3
FOR UPDATE SKIP LOCKED`
	takeSeats = `
UPDATE baseline.units
SET hold_id = $3
WHERE tenant_id = $1 AND variant_id = $2 AND unit_id = ANY ($4)`
)

// Seats has a row for each unit, as UnitRows, and lets a buyer take several: it
// selects free rows that no other transaction has locked, marks them, and
// inserts the hold and its audit row, in one transaction.
type Seats struct{ DB *pgxpool.Pool }

// Hold holds the units. Errors: ErrSoldOut, also when other transactions have
// the last units locked.
func (s *Seats) Hold(ctx context.Context, r Request) error {
	return pgx.BeginFunc(ctx, s.DB, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, lockSeats, r.TenantID, r.VariantID, r.Quantity)
		if err != nil {
			return err
		}
		ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
		if err != nil {
			return err
		}
		if int64(len(ids)) < r.Quantity {
			return ErrSoldOut
		}
		if _, err := tx.Exec(ctx, takeSeats, r.TenantID, r.VariantID, r.HoldID, ids); err != nil {
			return err
		}
		return insertTx(ctx, tx, r)
	})
}

const countSeats = `
SELECT (SELECT count(*) FROM baseline.holds WHERE status = 'held'),
       (SELECT count(*) FROM baseline.audit WHERE action = 'hold.held'),
       (SELECT count(*) FROM (SELECT FROM baseline.units WHERE hold_id IS NOT NULL GROUP BY hold_id HAVING count(*) = $1) whole)`

// CheckSeats fails unless the tables have exactly the given number of holds,
// each with its audit row and its units.
func CheckSeats(ctx context.Context, db *pgxpool.Pool, holds, units int64) error {
	var held, audited, whole int64
	if err := db.QueryRow(ctx, countSeats, units).Scan(&held, &audited, &whole); err != nil {
		return fmt.Errorf("count the baseline's seats: %w", err)
	}
	if held != holds || audited != holds || whole != holds {
		return fmt.Errorf("the baseline's seats do not add up: %d holds were answered, %d are in the table with %d audit rows, %d with all their seats",
			holds, held, audited, whole)
	}
	return nil
}
