package reservations_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/internal/pg"
	"github.com/holdfast/holdfast/reservations"
)

// ender ends several holds, through the pool or in a transaction, and returns
// their rows.
type ender func(h *house, handles ...*reservations.Handle) ([]reservations.Reservation, error)

var enders = map[string]struct {
	end ender
	to  reservations.Status
}{
	"CommitAll": {func(h *house, handles ...*reservations.Handle) ([]reservations.Reservation, error) {
		return reservations.CommitAll(h.TB.Context(), h.DB, h.by, handles)
	}, reservations.Committed},
	"CommitAllTx": {func(h *house, handles ...*reservations.Handle) (rs []reservations.Reservation, err error) {
		err = h.in(func(tx pgx.Tx) (err error) {
			rs, err = reservations.CommitAllTx(h.TB.Context(), tx, h.by, handles)
			return err
		})
		return rs, err
	}, reservations.Committed},
	"ReleaseAll": {func(h *house, handles ...*reservations.Handle) ([]reservations.Reservation, error) {
		return reservations.ReleaseAll(h.TB.Context(), h.DB, h.by, handles, reservations.Abandoned)
	}, reservations.Released},
	"ReleaseAllTx": {func(h *house, handles ...*reservations.Handle) (rs []reservations.Reservation, err error) {
		err = h.in(func(tx pgx.Tx) (err error) {
			var conflict *reservations.ConflictError
			rs, conflict, err = reservations.ReleaseAllTx(h.TB.Context(), tx, h.by, handles, reservations.Abandoned)
			return refusal(rs, conflict, err)
		})
		return rs, err
	}, reservations.Released},
}

// Holds of several kernels end together or not at all, and after a failure
// every handle can be used again.
func TestEndAll(t *testing.T) {
	t.Parallel()
	for name, c := range enders {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHouse(t)
			opts := reservations.HoldOpts{Quantity: 1, TTL: time.Hour}
			handles, err := reservations.HoldAll(t.Context(), h.DB, h.by,
				h.seats.Part("hamlet", all, opts), h.desks.Part("3rd", 1, opts), h.rooms.Part("twin", span{1, 2}, opts))
			h.Must(err)
			ended := h.seat("hamlet", 1)
			h.Must(failure(h.seats.Commit(t.Context(), h.by, h.again(ended))))
			for refused, tc := range map[string]struct {
				handles []*reservations.Handle
				want    func(error) bool
			}{
				"a hold that has ended":      {[]*reservations.Handle{handles[0], ended}, conflictWith(reservations.Committed)},
				"a hold that does not exist": {[]*reservations.Handle{handles[0], h.seats.Handle(h.tenant, uuid.New())}, is(reservations.ErrNotFound)},
				"a hold of another kind":     {[]*reservations.Handle{handles[0], h.seats.Handle(h.tenant, handles[1].ID())}, is(reservations.ErrNotFound)},
				"two handles of one hold":    {[]*reservations.Handle{handles[0], h.again(handles[0])}, is(reservations.ErrInvalid)},
				"the same handle twice":      {[]*reservations.Handle{handles[0], handles[0]}, is(reservations.ErrHandleUsed)},
				"no handle":                  {[]*reservations.Handle{handles[0], nil}, is(reservations.ErrInvalid)},
				"an invalid handle":          {[]*reservations.Handle{handles[0], {}}, is(reservations.ErrInvalid)},
				"none":                       {nil, is(reservations.ErrInvalid)},
				"more than a thousand":       {slices.Repeat(handles[:1], 1001), is(reservations.ErrInvalid)},
			} {
				if rs, err := c.end(h, tc.handles...); !tc.want(err) || rs != nil {
					t.Errorf("with %s: %v, %v", refused, rs, err)
				}
				h.wantStatus(handles[0].ID(), reservations.Held)
			}
			slices.Reverse(handles) // the rows are returned in this order, not in that of the ids
			ends, err := c.end(h, handles...)
			h.Must(err)
			for i, handle := range handles {
				h.wantStatus(handle.ID(), c.to)
				if diff := cmp.Diff(h.get(handle.ID()), ends[i]); diff != "" {
					t.Errorf("row %d (-want +got):\n%s", i, diff)
				}
			}
			used := is(reservations.ErrHandleUsed)
			if strings.HasSuffix(name, "Tx") { // the transaction could have been rolled back
				used = conflictWith(c.to)
			}
			if _, err := c.end(h, handles...); !used(err) {
				t.Errorf("a second time: %v", err)
			}
		})
	}
}

// A verb that ends a hold by its id returns the stored row, with the fields
// that the handle does not have.
func TestEndedRow(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	ctx := t.Context()
	for name, end := range map[string]func(handle *reservations.Handle) (reservations.Reservation, error){
		"Commit": func(handle *reservations.Handle) (reservations.Reservation, error) {
			return h.rooms.Commit(ctx, h.by, handle)
		},
		"CommitTx": func(handle *reservations.Handle) (r reservations.Reservation, err error) {
			err = h.in(func(tx pgx.Tx) (err error) {
				r, err = h.rooms.CommitTx(ctx, tx, h.by, handle)
				return err
			})
			return r, err
		},
		"Release": func(handle *reservations.Handle) (reservations.Reservation, error) {
			return h.rooms.Release(ctx, h.by, handle, reservations.Abandoned)
		},
		"ReleaseTx": func(handle *reservations.Handle) (r reservations.Reservation, err error) {
			err = h.in(func(tx pgx.Tx) (err error) {
				var conflict *reservations.ConflictError
				r, conflict, err = h.rooms.ReleaseTx(ctx, tx, h.by, handle, reservations.Abandoned)
				return refusal(r, conflict, err)
			})
			return r, err
		},
	} {
		held, err := h.rooms.Hold(ctx, h.by, name, span{1, 2}, reservations.HoldOpts{Quantity: 2, TTL: time.Hour, HolderID: "cart 1"})
		h.Must(err)
		ended, err := end(h.rooms.Handle(h.tenant, held.ID()))
		h.Must(err)
		if diff := cmp.Diff(h.get(held.ID()), ended); diff != "" || ended.Quantity != 2 || ended.EndedAt == nil {
			t.Errorf("%s returned (-want +got):\n%s", name, diff)
		}
		ended, err = end(h.rooms.Handle(h.tenant, held.ID()))
		if err == nil || ended.ReservationID != uuid.Nil {
			t.Errorf("%s a second time: %+v, %v", name, ended, err)
		}
	}
}

func is(want error) func(error) bool { return func(err error) bool { return errors.Is(err, want) } }

// Two sessions end the same holds, named in opposite orders, without a
// deadlock.
func TestEndAllInCrossingOrders(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	for range 20 {
		handles := []*reservations.Handle{h.seat("a", 1), h.seat("b", 1), h.seat("c", 1)}
		crossed := []*reservations.Handle{h.again(handles[2]), h.again(handles[1]), h.again(handles[0])}
		var results [2]error
		var callers sync.WaitGroup
		callers.Go(func() {
			results[0] = failure(reservations.ReleaseAll(t.Context(), h.DB, h.by, handles, reservations.Abandoned))
		})
		callers.Go(func() {
			results[1] = failure(reservations.ReleaseAll(t.Context(), h.DB, h.by, crossed, reservations.Abandoned))
		})
		callers.Wait()
		if done := results[0] == nil; done == (results[1] == nil) || !conflictWith(reservations.Released)(errors.Join(results[:]...)) {
			t.Fatalf("%v", results)
		}
	}
}

// Every verb returns an error for a nil handle and for one that no kernel made.
func TestNoHandle(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	ctx := t.Context()
	for name, handle := range map[string]*reservations.Handle{"nil": nil, "zero": {}} {
		_, extended := h.seats.Extend(ctx, h.by, handle, time.Minute)
		for verb, err := range map[string]error{
			"commit": failure(h.seats.Commit(ctx, h.by, handle)), "extend": extended,
			"release": failure(h.seats.Release(ctx, h.by, handle, reservations.Abandoned)),
			"in a transaction": h.in(func(tx pgx.Tx) error {
				_, extended := h.seats.ExtendTx(ctx, tx, h.by, handle, time.Minute)
				for _, err := range []error{failure(h.seats.CommitTx(ctx, tx, h.by, handle)), extended} {
					if !errors.Is(err, reservations.ErrInvalid) {
						t.Errorf("%s handle, in a transaction: %v", name, err)
					}
				}
				return refusal(h.seats.ReleaseTx(ctx, tx, h.by, handle, reservations.Abandoned))
			}),
		} {
			if !errors.Is(err, reservations.ErrInvalid) {
				t.Errorf("%s handle, %s: %v", name, verb, err)
			}
		}
	}
}

// Eight webhooks on a pool of two connections commit by id, in the callers'
// transactions. Making a handle uses no connection, and a hold that the same
// transaction made is found.
func TestHandleAsksNothing(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	config := h.DB.Config()
	config.MaxConns = 2
	small, err := pgxpool.NewWithConfig(t.Context(), config)
	h.Must(err)
	defer small.Close()
	k, err := reservations.NewKernel(small, seats{"venue.seat", 100}, reservations.Config{})
	h.Must(err)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	opts := reservations.HoldOpts{Quantity: 1, TTL: time.Hour}
	var webhooks sync.WaitGroup
	for i := range 8 {
		held, err := k.Hold(ctx, h.by, "hamlet", all, opts)
		h.Must(err)
		webhooks.Go(func() {
			err := pgx.BeginFunc(ctx, small, func(tx pgx.Tx) error {
				fresh, err := k.HoldTx(ctx, tx, h.by, fmt.Sprint("show ", i), all, opts)
				if err != nil {
					return err
				}
				return errors.Join(failure(k.CommitTx(ctx, tx, h.by, k.Handle(h.tenant, held.ID()))), failure(k.CommitTx(ctx, tx, h.by, k.Handle(h.tenant, fresh.ID()))))
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	webhooks.Wait()
	if n := h.Int(`SELECT count(*) FROM reservations WHERE status = 'committed'`); n != 16 {
		t.Errorf("%d committed, want 16", n)
	}
}

// broken is a resource that fails.
type broken struct{ seats }

var errBroken = errors.New("no such show")

func (broken) Capacity(context.Context, pgx.Tx, uuid.UUID, string, reservations.NoWindow) (int64, error) {
	return 0, errBroken
}

// The text of every error begins with the package's prefix. Errors of the
// driver, the context and the resource are wrapped.
func TestErrorTexts(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	ctx := t.Context()
	opts := reservations.HoldOpts{Quantity: 1, TTL: time.Hour}
	gone, cancel := context.WithCancel(ctx)
	cancel()
	closed, err := pgxpool.NewWithConfig(ctx, h.DB.Config())
	h.Must(err)
	closed.Close()
	away := kernelOf(h, seats{"venue.seat", 5}, reservations.Config{})
	_, resource := kernelOf(h, broken{seats{"venue.seat", 5}}, reservations.Config{}).Hold(ctx, h.by, "hamlet", all, opts)
	_, canceled := h.seats.Hold(gone, h.by, "hamlet", all, opts)
	_, pool := reservations.HoldAll(ctx, closed, h.by, h.seats.Part("hamlet", all, opts))
	_, sweep := away.SweepOnce(gone, 0)
	_, purge := away.PurgeEnded(gone, reservations.PurgeOpts{Retention: time.Hour})
	_, tooLong := h.seats.Extend(ctx, h.by, h.seat("hamlet", 1), 3*time.Hour)
	_, get := reservations.Get(gone, h.DB, h.tenant, uuid.New())
	_, config := reservations.NewKernel(h.DB, seats{"venue.seat", 5}, reservations.Config{SweepBatch: -1})
	var isolation, aborted error
	_ = pgx.BeginTxFunc(ctx, h.DB, pgx.TxOptions{IsoLevel: pgx.Serializable}, func(tx pgx.Tx) error {
		_, isolation = h.seats.HoldTx(ctx, tx, h.by, "hamlet", all, opts)
		_, err := tx.Exec(ctx, `SELECT 1 / 0`)
		aborted = failure(h.seats.CommitTx(ctx, tx, h.by, h.seat("hamlet", 1)))
		return err
	})
	for name, c := range map[string]struct{ err, is error }{
		"resource":    {resource, errBroken},
		"canceled":    {canceled, context.Canceled},
		"closed pool": {pool, nil},
		"commit":      {failure(reservations.CommitAll(ctx, closed, h.by, []*reservations.Handle{h.seat("hamlet", 1)})), nil},
		"release":     {failure(h.seats.Release(gone, h.by, h.seat("hamlet", 1), reservations.Operator)), context.Canceled},
		"sweep":       {sweep, context.Canceled},
		"purge":       {purge, context.Canceled},
		"lifetime":    {tooLong, reservations.ErrLifetimeExceeded},
		"get":         {get, context.Canceled},
		"config":      {config, nil},
		"isolation":   {isolation, reservations.ErrIsolation},
		"aborted":     {aborted, nil},
	} {
		if c.err == nil || !strings.HasPrefix(c.err.Error(), "reservations: ") || c.is != nil && !errors.Is(c.err, c.is) {
			t.Errorf("%s: %v", name, c.err)
		}
	}
}

// Two transactions that make holds on two keys in opposite orders deadlock.
// Postgres ends one of them; the other continues.
func TestCrossingHoldsDeadlock(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	opts := reservations.HoldOpts{Quantity: 1, TTL: time.Hour}
	hold := func(tx pgx.Tx, show string) error {
		_, err := h.seats.HoldTx(t.Context(), tx, h.by, show, all, opts)
		return err
	}
	first, end := h.session()
	h.Must(hold(first, "a"))
	waited, over := h.behind(func(tx pgx.Tx) error { return errors.Join(hold(tx, "b"), hold(tx, "a")) })
	if !waited {
		t.Fatal("the second did not wait")
	}
	err := hold(first, "b")
	end(err)
	other := <-over
	if err == nil {
		err, other = other, err
	}
	if pg.Code(err) != "40P01" || other != nil {
		t.Errorf("%v and %v, want one deadlock", err, other)
	}
}
