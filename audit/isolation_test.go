package audit_test

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/pgtest"
)

// At any isolation level, a handler's transaction writes the effects of its
// delivery once. It commits them with the checkpoint. It commits neither if
// another process took over after the transaction's snapshot was taken.
func TestCheckpointAtEveryLevel(t *testing.T) {
	t.Parallel()
	for _, level := range []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable} {
		t.Run(string(level), func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			execute(t, db, `CREATE TABLE effect (audit_id bigint NOT NULL)`)
			config := audit.SubscriptionConfig{FromBeginning: true}
			sub, other := subscribe(t, db, "levels", config), subscribe(t, db, "levels", config)
			var overtake bool
			effect := func(ctx context.Context, d *audit.Delivery) error {
				return pgx.BeginTxFunc(ctx, db, pgx.TxOptions{IsoLevel: level}, func(tx pgx.Tx) error {
					for _, r := range d.Records {
						if _, err := tx.Exec(ctx, `INSERT INTO effect VALUES ($1)`, r.AuditID); err != nil {
							return err
						}
					}
					if overtake {
						expireLease(t, db, "levels")
						if ids := deliver(t, other, 2); len(ids) != 2 {
							t.Errorf("the other process received %v", ids)
						}
					}
					return d.CheckpointTx(ctx, tx)
				})
			}
			writeSteps(t, db, 3)
			pgtest.Until(t, "it delivers", func() bool {
				report, err := sub.RunOnce(t.Context(), effect)
				if err != nil {
					t.Fatal(err)
				}
				return report.Delivered > 0
			})
			writeSteps(t, db, 2)
			var lost error
			overtake = true
			pgtest.Until(t, "another process takes over", func() bool {
				_, lost = sub.RunOnce(t.Context(), effect)
				return lost != nil
			})
			if level == pgx.ReadCommitted && !errors.Is(lost, audit.ErrLeaseLost) {
				t.Errorf("%v, want an error that the lease was lost", lost)
			}
			if n := ask[int](t, db, `SELECT count(*) FROM effect`); n != 3 {
				t.Errorf("%d effects, want the 3 of the delivery that kept its lease", n)
			}
			if s := state(t, db, "levels"); s.Lag != 0 {
				t.Errorf("%+v", s)
			}
		})
	}
}
