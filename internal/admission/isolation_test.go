package admission_test

import (
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/admission"
	"github.com/holdfast/holdfast/internal/pg"
	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/internal/queues"
	"github.com/holdfast/holdfast/internal/requestrows"
	"github.com/holdfast/holdfast/queues/hot"
	"github.com/holdfast/holdfast/requests"
)

// levels are the isolation levels, and the errors that a verb which needs READ
// COMMITTED returns there.
var levels = map[pgx.TxIsoLevel]error{
	pgx.ReadCommitted: nil, pgx.RepeatableRead: pg.ErrIsolation, pgx.Serializable: pg.ErrIsolation,
}

// A variant becomes hot, and the move ends, after the transaction's first
// statement. At a level with an older snapshot, the request would be queued in
// the normal stream. There the normal lane skips it, and the variant's slot no
// longer reads that stream.
func TestSubmitTxAfterAMove(t *testing.T) {
	t.Parallel()
	for level, want := range levels {
		t.Run(string(level), func(t *testing.T) {
			t.Parallel()
			b := newNormal(t)
			b.Stock("shoe", 10)
			hotLane, err := hot.NewLane(b.DB, discard, queues.LaneConfig{})
			pgtest.Must(t, err)
			var submitted requests.Request
			err = b.AfterSnapshot(level, func() {
				b.Pin("shoe")
				pgtest.Until(t, "the move ends", func() bool {
					b.Tick(hotLane)
					return b.Int(`SELECT count(*) FROM hot_variants WHERE state = 'hot'`) == 1
				})
			}, func(tx pgx.Tx) (err error) {
				s := add("a", "shoe", "")
				s.TenantID = b.Tenant
				submitted, err = admission.SubmitTx(t.Context(), tx, b.Inserter, s)
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

// A call that finishes at once uses the key after the transaction's first
// statement.
func TestSubmitTxAfterAKey(t *testing.T) {
	t.Parallel()
	for level, want := range levels {
		if want == nil {
			want = requestrows.ErrKeyReused
		}
		t.Run(string(level), func(t *testing.T) {
			t.Parallel()
			b := newNormal(t)
			b.Stock("shoe", 10)
			err := b.AfterSnapshot(level, func() {
				pgtest.Must(t, pgx.BeginFunc(t.Context(), b.DB, func(tx pgx.Tx) error {
					if err := finishAtOnce(t.Context(), tx, b.Tenant, "key"); err != nil {
						return err
					}
					return keep(t.Context(), tx, b.Tenant, "key")
				}))
			}, func(tx pgx.Tx) error {
				// after an error the caller rolls back, here to a savepoint
				return pgx.BeginFunc(t.Context(), tx, func(tx pgx.Tx) error {
					s := add("a", "shoe", "key")
					s.TenantID = b.Tenant
					_, err := admission.SubmitTx(t.Context(), tx, b.Inserter, s)
					return err
				})
			})
			if !errors.Is(err, want) {
				t.Errorf("%v, want %v", err, want)
			}
			if n := b.Int(`SELECT count(*) FROM reservation_requests`); n != 0 {
				t.Errorf("%d requests under a key that is already used", n)
			}
		})
	}
}

// On a pool whose transactions are not READ COMMITTED, the intake and the lanes
// return the error. It counts as an attempt of no request.
func TestPoolAtAnotherLevel(t *testing.T) {
	t.Parallel()
	b := newNormal(t)
	b.Stock("shoe", 10)
	waiting := b.Submit("a", "shoe", 1)
	at := b.With("default_transaction_isolation", "repeatable read")
	for _, a := range gather(t, at, admission.IntakeConfig{}, []requestrows.Submission{add("a", "shoe", "one"), add("a", "shoe", "two")}).run() {
		if !errors.Is(a.err, pg.ErrIsolation) {
			t.Errorf("the intake returns %v, want ErrIsolation", a.err)
		}
	}
	if _, err := at.Lane(queues.LaneConfig{}).Tick(t.Context()); !errors.Is(err, pg.ErrIsolation) {
		t.Errorf("a tick returns %v, want ErrIsolation", err)
	}
	b.Want(waiting, requests.Queued, "")
	b.Tick(b.Lane(queues.LaneConfig{}))
	b.Want(waiting, requests.Done, "")
}
