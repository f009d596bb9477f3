package metered_test

import (
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/pg"
	"github.com/holdfast/holdfast/internal/tokens"
	"github.com/holdfast/holdfast/metered"
)

// after runs a verb in a transaction of that level, after concurrent. The
// transaction takes its snapshot before concurrent is called.
func (b *bundle) after(level pgx.TxIsoLevel, concurrent func(), verb func(tx pgx.Tx) error) error {
	b.t.Helper()
	return pgx.BeginTxFunc(b.t.Context(), b.db, pgx.TxOptions{IsoLevel: level}, func(tx pgx.Tx) error {
		if _, err := tx.Exec(b.t.Context(), `SELECT count(*) FROM budget_scopes`); err != nil {
			return err
		}
		concurrent()
		return verb(tx)
	})
}

// A verb never returns a wrong answer if the rows on which it depends were
// committed after its transaction began. At READ COMMITTED it sees them. At a
// stricter level it fails with a serialization failure, or refuses the level.
func TestStrictLevelsLoseNothing(t *testing.T) {
	t.Parallel()
	for _, level := range []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable} {
		t.Run(string(level), func(t *testing.T) {
			t.Parallel()
			b := newBundle(t)
			strict := level != pgx.ReadCommitted
			token := b.mint()
			var reservation metered.Reservation
			for _, c := range []struct {
				name       string
				concurrent func()
				verb       func(tx pgx.Tx) error
				want       error // the error at READ COMMITTED
			}{
				{"reserve", func() { b.reserve(charge("s", 60, 100, time.Hour)) }, func(tx pgx.Tx) error {
					_, err := b.budgets.TryReserveTx(t.Context(), tx, b.tenant, charge("s", 60, 100, time.Hour))
					return err
				}, metered.ErrOverBudget},
				{"consume", func() { _, err := b.consume(redeem(token)); b.must(err) }, func(tx pgx.Tx) error {
					_, err := b.tokens.ConsumeTx(t.Context(), tx, b.tenant, redeem(token))
					return err
				}, tokens.ErrUsed},
				{"enqueue", func() { b.enqueue(b.transcode("key")) }, func(tx pgx.Tx) error {
					job := b.transcode("key")
					job.Args = transcodeArgs{8}
					_, _, err := b.commands.EnqueueTx(t.Context(), tx, job)
					return err
				}, metered.ErrKeyReused},
			} {
				err := b.after(level, c.concurrent, c.verb)
				if strict && pg.Code(err) != "40001" || !strict && !errors.Is(err, c.want) {
					t.Errorf("%s: %v", c.name, err)
				}
			}
			err := b.after(level, func() { reservation = b.reserve(charge("new", 60, 100, time.Hour)).Reservation }, func(tx pgx.Tx) error {
				_, err := b.budgets.SettleTx(t.Context(), tx, b.tenant, reservation, 10)
				return err
			})
			if errors.Is(err, pg.ErrIsolation) != strict || isRefusal(err) || !strict && err != nil {
				t.Errorf("settle: %v", err)
			}
		})
	}
}
