package reservations_test

import (
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/pg"
	"github.com/holdfast/holdfast/internal/reservationrows"
	"github.com/holdfast/holdfast/reservations"
)

// wantExpiries checks the number of expiries of a hold in the record.
func (h *house) wantExpiries(handle *reservations.Handle, want int) {
	h.TB.Helper()
	history, err := audit.History(h.TB.Context(), h.DB, h.tenant, handle.ID())
	h.Must(err)
	var got int
	for _, r := range history {
		if r.Action == reservationrows.EventExpired && r.Actor == audit.Job("expiry") && r.Reason == "ttl" {
			got++
		}
	}
	if got != want {
		h.TB.Errorf("%d expiries recorded, want %d", got, want)
	}
}

// From its deadline on, every verb reports a hold as expired. A release records
// the expiry.
func TestDueHasOneAnswer(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	ctx := t.Context()
	handle := h.seat("hamlet", 2)
	h.lapse(handle)
	expired := conflictWith(reservations.Expired)
	if err := failure(h.seats.Commit(ctx, h.by, handle)); !expired(err) {
		t.Errorf("commit: %v", err)
	}
	if _, err := h.seats.Extend(ctx, h.by, handle, time.Minute); !expired(err) {
		t.Errorf("extend: %v", err)
	}
	h.wantExpiries(handle, 0)
	for range 2 { // the handle can be used again
		if err := failure(h.seats.Release(ctx, h.by, handle, reservations.Abandoned)); !expired(err) {
			t.Errorf("release: %v", err)
		}
		h.wantExpiries(handle, 1)
	}
	if r := h.get(handle.ID()); r.Status != reservations.Expired || r.ReleaseReason != reservationrows.TTL || r.EndedAt == nil {
		t.Errorf("%+v, want it expired", r)
	}
}

// A release of a due hold in the caller's transaction writes its expiry, which
// exists if that transaction commits.
func TestReleaseTxOfDue(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	handle := h.seat("hamlet", 2)
	h.lapse(handle)
	release := func(tx pgx.Tx) error {
		err := refusal(h.seats.ReleaseTx(t.Context(), tx, h.by, handle, reservations.Abandoned))
		if !conflictWith(reservations.Expired)(err) {
			t.Errorf("%v, want a conflict", err)
		}
		return err
	}
	if err := h.in(release); err == nil {
		t.Error("committed")
	}
	h.wantExpiries(handle, 0)
	h.Must(h.in(func(tx pgx.Tx) error {
		_ = release(tx)
		_, err := tx.Exec(t.Context(), `SELECT`) // the transaction is usable
		return err
	}))
	h.wantExpiries(handle, 1)
	h.wantStatus(handle.ID(), reservations.Expired)
}

// Of several holds, the due ones are recorded as expired, and none is released.
func TestReleaseAllWithDue(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	due, live := h.seat("hamlet", 1), h.seat("hamlet", 1)
	h.lapse(due)
	if err := failure(reservations.ReleaseAll(t.Context(), h.DB, h.by, []*reservations.Handle{live, due}, reservations.Abandoned)); !conflictWith(reservations.Expired)(err) {
		t.Errorf("%v, want a conflict", err)
	}
	h.wantExpiries(due, 1)
	h.wantStatus(live.ID(), reservations.Held)
	h.Must(failure(h.seats.Release(t.Context(), h.by, live, reservations.Abandoned)))
}

// The callers of a kernel may use other reasons, which are recorded unchanged.
func TestReasons(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	for _, reason := range []reservations.ReleaseReason{"card_declined", "x", reservations.Operator, "no_show_2"} {
		handle := h.seat("hamlet", 5)
		h.Must(failure(h.seats.Release(t.Context(), h.by.WithReason(""), handle, reason)))
		if got := h.get(handle.ID()).ReleaseReason; got != reason {
			t.Errorf("released for %q, want %q", got, reason)
		}
		history, err := audit.History(t.Context(), h.DB, h.tenant, handle.ID())
		h.Must(err)
		if event, ok, err := reservations.ParseEvent(history[1]); err != nil || !ok || event.ReleaseReason != reason || event.Reason != string(reason) {
			t.Errorf("%+v, %v, want the reason %q", event, err, reason)
		}
	}
	handle := h.seat("hamlet", 5)
	for _, reason := range []reservations.ReleaseReason{
		"", reservationrows.TTL, "Card", "card declined", "1st", "_x", "a-b", "é",
		"x234567890123456789012345678901234567890123456789012345678901234x",
	} {
		if err := failure(h.seats.Release(t.Context(), h.by, handle, reason)); !errors.Is(err, reservations.ErrInvalid) {
			t.Errorf("released for %q: %v", reason, err)
		}
	}
	h.Must(failure(h.seats.Release(t.Context(), h.by, handle, "x23456789012345678901234567890123456789012345678901234567890123x")))
}

// A hold with a deadline past the lifetime cap is rejected, like an extension
// past it. A hold with a deadline at the cap is made.
func TestLifetimeOfHold(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	k := kernelOf(h, seats{"venue.seat", 5}, reservations.Config{LifetimeMax: time.Minute})
	_, err := k.Hold(t.Context(), h.by, "hamlet", all, reservations.HoldOpts{Quantity: 1, TTL: time.Minute + 1})
	if !errors.Is(err, reservations.ErrLifetimeExceeded) {
		t.Errorf("%v, want %v", err, reservations.ErrLifetimeExceeded)
	}
	handle, err := k.Hold(t.Context(), h.by, "hamlet", all, reservations.HoldOpts{Quantity: 1, TTL: time.Minute})
	h.Must(err)
	if r, ok := handle.Reservation(); !ok || r.ExpiresAt.Sub(r.HeldAt) != time.Minute {
		t.Errorf("held for %s, read %t", r.ExpiresAt.Sub(r.HeldAt), ok)
	}
}

// The verbs that end a hold are correct at every isolation level. A transaction
// with an older snapshot finds no hold, or must be repeated. It never ends a
// hold twice.
func TestEndAtEveryLevel(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	for _, level := range []pgx.TxIsoLevel{pgx.RepeatableRead, pgx.Serializable} {
		show := string(level)
		before := h.seat(show, 1)
		tx, err := h.DB.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: level})
		h.Must(err)
		_, err = tx.Exec(t.Context(), `SELECT FROM reservations`) // takes the snapshot
		h.Must(err)
		after := h.seat(show, 1)
		h.Must(failure(h.seats.Release(t.Context(), h.by, h.again(before), reservations.Abandoned)))
		if err := failure(h.seats.CommitTx(t.Context(), tx, h.by, after)); !errors.Is(err, reservations.ErrNotFound) {
			t.Errorf("%s: a hold made after the snapshot: %v", level, err)
		}
		if err := failure(h.seats.CommitTx(t.Context(), tx, h.by, before)); pg.Code(err) != "40001" {
			t.Errorf("%s: a hold ended after the snapshot: %v", level, err)
		}
		h.Must(tx.Rollback(t.Context()))
		h.wantStatus(before.ID(), reservations.Released)
		h.Must(pgx.BeginTxFunc(t.Context(), h.DB, pgx.TxOptions{IsoLevel: level}, func(tx pgx.Tx) error {
			return failure(h.seats.CommitTx(t.Context(), tx, h.by, after))
		}))
	}
}
