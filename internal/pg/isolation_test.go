package pg_test

import (
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/pg"
	"github.com/holdfast/holdfast/internal/pgtest"
)

// At a rejected level, the statements after the check do not run, and the
// transaction cannot be committed. The same is true in a savepoint.
func TestQueueIsolation(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	for _, tc := range []struct {
		level pgx.TxIsoLevel
		want  error
	}{
		{"", nil},
		{pgx.ReadUncommitted, nil},
		{pgx.ReadCommitted, nil},
		{pgx.RepeatableRead, pg.ErrIsolation},
		{pgx.Serializable, pg.ErrIsolation},
	} {
		for _, inSavepoint := range []bool{false, true} {
			tx, err := db.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: tc.level})
			if err != nil {
				t.Fatal(err)
			}
			inner := tx
			if inSavepoint {
				if inner, err = tx.Begin(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			ran := 0
			b := &pgx.Batch{}
			pg.QueueIsolation(b)
			b.Queue(`SELECT 1`).QueryRow(func(row pgx.Row) error { return row.Scan(&ran) })
			err = inner.SendBatch(t.Context(), b).Close()
			if !errors.Is(err, tc.want) || (err == nil) != (tc.want == nil) {
				t.Errorf("%q: %v, want %v", tc.level, err, tc.want)
			}
			if (ran == 1) != (tc.want == nil) {
				t.Errorf("%q: the statement after the check returned %d", tc.level, ran)
			}
			if err != nil && (pg.IsData(err) || !pg.IsOutage(err)) {
				t.Errorf("%q: %v is classified as an error of the row", tc.level, err)
			}
			if err := inner.Commit(t.Context()); (err == nil) != (tc.want == nil) {
				t.Errorf("%q: commit returns %v", tc.level, err)
			}
			if err := tx.Rollback(t.Context()); err != nil && !errors.Is(err, pgx.ErrTxClosed) {
				t.Error(err)
			}
		}
	}
}
