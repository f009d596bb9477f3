package ratelimit_test

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/pg"
)

// Another transaction has counted after the snapshot of a batch's transaction
// was taken. The batch sees that at READ COMMITTED, and fails with a
// serialization failure at a stricter level.
func TestStrictLevelsLoseNothing(t *testing.T) {
	t.Parallel()
	for _, level := range []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable} {
		t.Run(string(level), func(t *testing.T) {
			t.Parallel()
			b := newBundle(t)
			err := pgx.BeginTxFunc(t.Context(), b.db, pgx.TxOptions{IsoLevel: level}, func(tx pgx.Tx) error {
				if _, err := tx.Exec(t.Context(), `SELECT count(*) FROM budget_rates`); err != nil {
					return err
				}
				b.decide(countAll, b.item(noToken, hourly("r", 20, 24)))
				results, err := b.decideTx(tx, countAll, b.item(noToken, hourly("r", 20, 24)))
				if err != nil {
					return err
				}
				return results[0].Err
			})
			strict := level != pgx.ReadCommitted
			if strict && pg.Code(err) != "40001" || !strict && !isExceeded(err) {
				t.Error(err)
			}
		})
	}
}
