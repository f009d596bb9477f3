package pg_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/pg"
	"github.com/holdfast/holdfast/internal/pgtest"
)

// The clock advances within a transaction, unlike now().
func TestClockGoesOn(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	var first, second time.Time
	err := pgx.BeginFunc(t.Context(), db, func(tx pgx.Tx) (err error) {
		first, err = pg.ReadClock(t.Context(), tx)
		if err != nil {
			return err
		}
		b := &pgx.Batch{}
		b.Queue(`SELECT pg_sleep(0.001)`)
		pg.QueueClock(b, &second)
		return tx.SendBatch(t.Context(), b).Close()
	})
	if err != nil || first.IsZero() || !second.After(first) {
		t.Errorf("%s, then %s, %v", first, second, err)
	}
	db.Close()
	if _, err := pg.ReadClock(t.Context(), db); err == nil {
		t.Error("a closed pool returned a time")
	}
}
