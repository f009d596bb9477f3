package requests_test

import (
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/lanetest"
	"github.com/holdfast/holdfast/queues"
	"github.com/holdfast/holdfast/queues/hot"
	"github.com/holdfast/holdfast/requests"
	"github.com/holdfast/holdfast/reservations"
)

// levels are the isolation levels, and what a verb returns there that needs READ COMMITTED.
var levels = map[pgx.TxIsoLevel]error{
	pgx.ReadCommitted: nil, pgx.RepeatableRead: requests.ErrIsolation, pgx.Serializable: requests.ErrIsolation,
}

// afterSnapshot runs verb in a transaction at the level, whose snapshot is taken before meanwhile happens, and commits
// whatever verb returns.
func afterSnapshot(t *testing.T, b *lanetest.Bench, level pgx.TxIsoLevel, meanwhile func(), verb func(tx pgx.Tx) error) error {
	t.Helper()
	tx, err := b.DB.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: level})
	must(t, err)
	defer func() { _ = tx.Rollback(t.Context()) }()
	_, err = tx.Exec(t.Context(), `SELECT 1`)
	must(t, err)
	meanwhile()
	verbErr := verb(tx)
	if err := tx.Commit(t.Context()); err != nil && verbErr == nil {
		t.Errorf("%s: commit: %v", level, err)
	}
	return verbErr
}

// A variant becomes hot, and the move settles, after the transaction's first statement. At a level whose snapshot is older,
// the request would be queued in the normal stream, which the normal lane skips and the slot reads no longer.
func TestSubmitTxAfterAMove(t *testing.T) {
	t.Parallel()
	for level, want := range levels {
		t.Run(string(level), func(t *testing.T) {
			t.Parallel()
			b := newNormal(t)
			b.Stock("shoe", 10)
			hotLane, err := hot.NewLane(b.DB, discard, queues.LaneConfig{})
			must(t, err)
			var submitted requests.Request
			err = afterSnapshot(t, b, level, func() {
				must(t, hot.Pin(t.Context(), b.DB, b.Bell, b.Tenant, "shoe"))
				eventually(t, "the move settles", func() bool {
					b.Tick(hotLane)
					return b.Int(`SELECT count(*) FROM hot_variants WHERE state = 'hot'`) == 1
				})
			}, func(tx pgx.Tx) (err error) {
				s := add("a", "shoe", "")
				s.TenantID = b.Tenant
				submitted, err = requests.SubmitTx(t.Context(), tx, b.Bell, s)
				return err
			})
			if !errors.Is(err, want) {
				t.Errorf("%v, want %v", err, want)
			}
			for range 3 {
				b.Tick(hotLane)
				b.Tick(b.Lane(queues.LaneConfig{}))
			}
			if n := b.Int(`SELECT count(*) FROM reservation_requests WHERE status = 'queued'`); n != 0 {
				t.Error("a request is queued that no lane decides")
			}
			if err == nil {
				b.Want(submitted, requests.Done, "")
			}
		})
	}
}

// A call that finishes at once uses the key after the transaction's first statement.
func TestSubmitTxAfterAKey(t *testing.T) {
	t.Parallel()
	for level, want := range levels {
		if want == nil {
			want = requests.ErrKeyReused
		}
		t.Run(string(level), func(t *testing.T) {
			t.Parallel()
			b := newNormal(t)
			b.Stock("shoe", 10)
			err := afterSnapshot(t, b, level, func() {
				must(t, pgx.BeginFunc(t.Context(), b.DB, func(tx pgx.Tx) error {
					if err := finishAtOnce(t.Context(), tx, b.Tenant, "key"); err != nil {
						return err
					}
					return keep(t.Context(), tx, b.Tenant, "key")
				}))
			}, func(tx pgx.Tx) error {
				// after an error the caller rolls back, if only to a savepoint
				return pgx.BeginFunc(t.Context(), tx, func(tx pgx.Tx) error {
					s := add("a", "shoe", "key")
					s.TenantID = b.Tenant
					_, err := requests.SubmitTx(t.Context(), tx, b.Bell, s)
					return err
				})
			})
			if !errors.Is(err, want) {
				t.Errorf("%v, want %v", err, want)
			}
			if n := b.Int(`SELECT count(*) FROM reservation_requests`); n != 0 {
				t.Errorf("%d requests under a key that has an effect already", n)
			}
		})
	}
}

// A cart gets a hold after the transaction's first statement: a checkout or a removal that did not see it would not be of
// the whole cart.
func TestCartVerbsSeeTheWholeCart(t *testing.T) {
	t.Parallel()
	for name, verb := range map[string]func(b *lanetest.Bench, tx pgx.Tx) (int, error){
		"checkout": func(b *lanetest.Bench, tx pgx.Tx) (int, error) {
			ended, err := requests.CheckoutTx(b.TB.Context(), tx, b.Tenant, "a", audit.Origin{})
			return len(ended), err
		},
		"remove": func(b *lanetest.Bench, tx pgx.Tx) (int, error) {
			removed, err := requests.RemoveTx(b.TB.Context(), tx, b.Tenant, "a", "", reservations.CartRemoved, audit.Origin{})
			return len(removed.Released), err
		},
	} {
		for level, want := range levels {
			t.Run(name+" "+string(level), func(t *testing.T) {
				t.Parallel()
				b := newNormal(t)
				b.Stock("shoe", 10)
				b.Stock("sock", 10)
				lane := b.Lane(queues.LaneConfig{})
				b.Submit("a", "shoe", 1)
				b.Tick(lane)
				ended := 0
				err := afterSnapshot(t, b, level, func() {
					b.Submit("a", "sock", 1)
					b.Tick(lane)
				}, func(tx pgx.Tx) (err error) {
					ended, err = verb(b, tx)
					return err
				})
				if !errors.Is(err, want) {
					t.Errorf("%v, want %v", err, want)
				}
				if left := b.Int(`SELECT count(*) FROM reservations WHERE status = 'held'`); ended+int(left) != 2 || left == 1 {
					t.Errorf("%d ended and %d left, want all or none of 2", ended, left)
				}
				b.Sound()
			})
		}
	}
}

// On a pool whose transactions are not READ COMMITTED, the intake and the lanes return the error instead of doing harm, and
// the error is no request's fault.
func TestPoolAtAnotherLevel(t *testing.T) {
	t.Parallel()
	b := newNormal(t)
	b.Stock("shoe", 10)
	waiting := b.Submit("a", "shoe", 1)
	at := b.With("default_transaction_isolation", "repeatable read")
	for _, a := range gather(t, at, requests.IntakeConfig{}, []requests.Submission{add("a", "shoe", "one"), add("a", "shoe", "two")}).run() {
		if !errors.Is(a.err, requests.ErrIsolation) {
			t.Errorf("the intake returns %v, want ErrIsolation", a.err)
		}
	}
	if _, err := at.Lane(queues.LaneConfig{}).Tick(t.Context()); !errors.Is(err, requests.ErrIsolation) {
		t.Errorf("a tick returns %v, want ErrIsolation", err)
	}
	b.Want(waiting, requests.Queued, "")
	b.Tick(b.Lane(queues.LaneConfig{}))
	b.Want(waiting, requests.Done, "")
}
