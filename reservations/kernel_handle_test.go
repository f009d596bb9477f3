package reservations_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/reservationrows"
	"github.com/holdfast/holdfast/reservations"
)

// A handle is used once in its process. Across processes the database decides
// which use was first.
func TestHandleIsUsedOnce(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	ctx := t.Context()
	verbs := map[string]func(*reservations.Handle) error{
		"commit": func(handle *reservations.Handle) error { return failure(h.seats.Commit(ctx, h.by, handle)) },
		"release": func(handle *reservations.Handle) error {
			return failure(h.seats.Release(ctx, h.by, handle, reservations.Abandoned))
		},
		"extend": func(handle *reservations.Handle) error {
			_, err := h.seats.Extend(ctx, h.by, handle, time.Minute)
			return err
		},
	}
	ended := map[string]reservations.Status{"commit": reservations.Committed, "release": reservations.Released}
	for first, use := range verbs {
		for second, useAgain := range verbs {
			handle := h.seat(first+second, 1)
			elsewhere := h.again(handle)
			h.Must(use(handle))
			if err := useAgain(handle); !errors.Is(err, reservations.ErrHandleUsed) {
				t.Errorf("%s after %s: %v, want %v", second, first, err, reservations.ErrHandleUsed)
			}
			err := useAgain(elsewhere)
			if status := ended[first]; status == "" && err != nil || status != "" && !conflictWith(status)(err) {
				t.Errorf("%s after %s elsewhere: %v", second, first, err)
			}
			if conflict, ok := errors.AsType[*reservations.ConflictError](err); ok && conflict.ID != handle.ID() {
				t.Errorf("the conflict is of %s, want %s", conflict.ID, handle.ID())
			}
		}
	}
	handle := h.seat("raced", 1)
	var used, turnedAway int
	var mu sync.Mutex
	var callers sync.WaitGroup
	for range 16 {
		callers.Go(func() {
			err := verbs["commit"](handle)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				used++
			case errors.Is(err, reservations.ErrHandleUsed):
				turnedAway++
			}
		})
	}
	callers.Wait()
	if used != 1 || turnedAway != 15 {
		t.Errorf("%d used it, %d were rejected, want 1 and 15", used, turnedAway)
	}
}

// A handle can be used again after a verb that failed: with an error of the
// verb, without an answer of the database, or with a COMMIT that failed.
func TestHandleIsGivenBack(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	handle := h.seat("hamlet", 1)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if err := failure(h.seats.Commit(gone, h.by, handle)); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want the context's end", err)
	}
	if err := failure(h.seats.Release(t.Context(), h.by, handle, reservationrows.TTL)); !errors.Is(err, reservations.ErrInvalid) {
		t.Errorf("released for its TTL: %v", err)
	}
	if _, err := h.seats.Extend(t.Context(), h.by, handle, 3*time.Hour); !errors.Is(err, reservations.ErrLifetimeExceeded) {
		t.Errorf("extended past the cap: %v", err)
	}
	if _, err := h.seats.Extend(t.Context(), h.by, handle, 0); !errors.Is(err, reservations.ErrInvalid) {
		t.Errorf("extended by 0: %v", err)
	}
	h.Exec(`CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no'; END $$`)
	h.Exec(`CREATE CONSTRAINT TRIGGER refuse AFTER UPDATE ON reservations DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION refuse()`)
	if err := failure(h.seats.Commit(t.Context(), h.by, handle)); err == nil {
		t.Error("committed although the COMMIT failed")
	}
	if _, err := h.seats.Extend(t.Context(), h.by, handle, time.Minute); err == nil {
		t.Error("extended although the COMMIT failed")
	}
	h.Exec(`DROP TRIGGER refuse ON reservations`)
	h.Must(failure(h.seats.Commit(t.Context(), h.by, handle)))
	h.wantStatus(handle.ID(), reservations.Committed)
}

// A transaction that was rolled back leaves its handles usable, for a retry of
// the same transaction. After the commit a second use is a conflict.
func TestHandleAfterRollback(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	ctx := t.Context()
	errUndo := errors.New("undo")
	for name, use := range map[string]func(tx pgx.Tx, handle *reservations.Handle) error{
		"commit": func(tx pgx.Tx, handle *reservations.Handle) error {
			return failure(h.seats.CommitTx(ctx, tx, h.by, handle))
		},
		"release": func(tx pgx.Tx, handle *reservations.Handle) error {
			return refusal(h.seats.ReleaseTx(ctx, tx, h.by, handle, reservations.Abandoned))
		},
		"commit all": func(tx pgx.Tx, handle *reservations.Handle) error {
			return failure(reservations.CommitAllTx(ctx, tx, h.by, []*reservations.Handle{handle}))
		},
		"release all": func(tx pgx.Tx, handle *reservations.Handle) error {
			return refusal(reservations.ReleaseAllTx(ctx, tx, h.by, []*reservations.Handle{handle}, reservations.Abandoned))
		},
	} {
		handle := h.seat(name, 1)
		for range 2 {
			if err := h.in(func(tx pgx.Tx) error { return errors.Join(use(tx, handle), errUndo) }); !errors.Is(err, errUndo) || err.Error() != errUndo.Error() {
				t.Errorf("%s: %v, want only the rollback", name, err)
			}
		}
		h.wantStatus(handle.ID(), reservations.Held)
		h.Must(h.in(func(tx pgx.Tx) error { return use(tx, handle) }))
		if err := h.in(func(tx pgx.Tx) error { return use(tx, handle) }); !errors.As(err, new(*reservations.ConflictError)) {
			t.Errorf("%s after the commit: %v, want a conflict", name, err)
		}
	}
	handle := h.seat("extend", 1)
	for range 2 {
		if err := h.in(func(tx pgx.Tx) error {
			_, err := h.seats.ExtendTx(ctx, tx, h.by, handle, time.Minute)
			return errors.Join(err, errUndo)
		}); err.Error() != errUndo.Error() {
			t.Errorf("extend: %v, want only the rollback", err)
		}
	}
}

// The keys and windows of rows, of errors and of events decode into the types
// of the kernel.
func TestDecode(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	ctx, window := t.Context(), span{10, 12}
	held, err := h.rooms.Hold(ctx, h.by, "a <b>", window, reservations.HoldOpts{Quantity: 1, TTL: time.Hour})
	h.Must(err)
	_, err = h.rooms.Hold(ctx, h.by, "a <b>", window, reservations.HoldOpts{Quantity: 1 << 40, TTL: time.Hour})
	short, ok := errors.AsType[*reservations.InsufficientError](err)
	if !ok {
		t.Fatalf("%v, want an *InsufficientError", err)
	}
	row := h.get(held.ID())
	history, err := audit.History(ctx, h.DB, h.tenant, held.ID())
	h.Must(err)
	event, ok, err := reservations.ParseEvent(history[0])
	h.Must(err)
	if !ok {
		t.Errorf("%+v is no event", history[0])
	}
	for name, texts := range map[string][2]string{
		"row": {row.ResourceKey, row.ResourceWindow}, "error": {short.Key, short.Window}, "event": {event.ResourceKey, event.ResourceWindow},
	} {
		key, decoded, err := h.rooms.Decode(texts[0], texts[1])
		h.Must(err)
		if key != "a <b>" || decoded != window {
			t.Errorf("%s: %v, %v", name, key, decoded)
		}
	}
	if key, _, err := h.seats.Decode(`"hamlet"`, ""); key != "hamlet" || err != nil {
		t.Errorf("no window: %q, %v", key, err)
	}
	for field, texts := range map[string][2]string{"key": {"{", row.ResourceWindow}, "window": {row.ResourceKey, ""}} {
		if _, _, err := h.rooms.Decode(texts[0], texts[1]); !errors.Is(err, reservations.ErrInvalid) || !strings.Contains(err.Error(), "the "+field) {
			t.Errorf("%s: %v, want %v with the field", field, err, reservations.ErrInvalid)
		}
	}
}

// A hold is not found under another tenant, or if it does not exist. The kernel
// of another kind refuses its handle by name.
func TestForeign(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	ctx, mine := t.Context(), h.seat("hamlet", 1)
	stranger := reservations.By(uuid.New(), audit.User("eve"))
	desk, err := h.desks.Hold(ctx, h.by, "3rd", 0, reservations.HoldOpts{Quantity: 1, TTL: time.Hour})
	h.Must(err)
	attempts := map[string]error{
		"commit, foreign":  failure(h.seats.Commit(ctx, stranger, mine)),
		"release, foreign": failure(h.seats.Release(ctx, stranger, mine, reservations.Operator)),
	}
	_, attempts["extend, foreign"] = h.seats.Extend(ctx, stranger, mine, time.Minute)
	_, extended := h.desks.Extend(ctx, h.by, mine, time.Minute)
	for verb, err := range map[string]error{
		"commit": failure(h.desks.Commit(ctx, h.by, mine)), "extend": extended, "release": failure(h.desks.Release(ctx, h.by, mine, reservations.Operator)),
		"release of a desk": failure(h.seats.Release(ctx, h.by, desk, reservations.Operator)),
	} {
		if !errors.Is(err, reservations.ErrInvalid) || !strings.Contains(err.Error(), "house.desk") || !strings.Contains(err.Error(), "venue.seat") {
			t.Errorf("%s: %v, want %v with both kinds", verb, err, reservations.ErrInvalid)
		}
	}
	for name, named := range map[string]*reservations.Handle{
		"foreign handle":           h.seats.Handle(stranger.TenantID, mine.ID()),
		"handle of another tenant": h.seats.Handle(h.tenant, uuid.New()),
		"handle of no tenant":      h.seats.Handle(uuid.Nil, mine.ID()),
	} {
		attempts["commit, "+name] = failure(h.seats.Commit(ctx, h.by, named))
		attempts["release all, "+name] = failure(reservations.ReleaseAll(ctx, h.DB, h.by, []*reservations.Handle{h.again(mine), named}, reservations.Operator))
	}
	attempts["foreign handle and actor"] = failure(h.seats.Commit(ctx, stranger, h.seats.Handle(stranger.TenantID, mine.ID())))
	attempts["handle of another kind"] = failure(reservations.CommitAll(ctx, h.DB, h.by, []*reservations.Handle{h.desks.Handle(h.tenant, mine.ID())}))
	for name, err := range attempts {
		if !errors.Is(err, reservations.ErrNotFound) {
			t.Errorf("%s: %v, want %v", name, err, reservations.ErrNotFound)
		}
	}
	if _, err := h.seats.Hold(ctx, stranger, "hamlet", all, reservations.HoldOpts{Quantity: 5, TTL: time.Hour}); err != nil {
		t.Errorf("another tenant's show of that name: %v", err)
	}
	h.Must(failure(h.seats.Commit(ctx, h.by, mine)))
}

// A hold's transaction must be READ COMMITTED. After ErrIsolation it is still
// usable.
func TestIsolation(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	for level, want := range map[pgx.TxIsoLevel]error{
		pgx.RepeatableRead: reservations.ErrIsolation, pgx.Serializable: reservations.ErrIsolation, pgx.ReadCommitted: nil,
	} {
		err := pgx.BeginTxFunc(t.Context(), h.DB, pgx.TxOptions{IsoLevel: level}, func(tx pgx.Tx) error {
			_, err := h.seats.HoldTx(t.Context(), tx, h.by, "hamlet", all, reservations.HoldOpts{Quantity: 1, TTL: time.Hour})
			if !errors.Is(err, want) {
				t.Errorf("%s: %v, want %v", level, err, want)
			}
			_, err = tx.Exec(t.Context(), `SELECT`)
			return err
		})
		h.Must(err)
	}
}

// An argument out of range is ErrInvalid before any query.
func TestInvalid(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	long := strings.Repeat("x", 1025)
	good := reservations.HoldOpts{Quantity: 1, TTL: time.Hour}
	for name, opts := range map[string]reservations.HoldOpts{
		"zero":               {},
		"nothing":            {TTL: time.Hour},
		"negative quantity":  {Quantity: -1, TTL: time.Hour},
		"quantity too large": {Quantity: 1<<53 + 1, TTL: time.Hour},
		"no TTL":             {Quantity: 1},
		"TTL too short":      {Quantity: 1, TTL: time.Millisecond - 1},
		"long holder":        {Quantity: 1, TTL: time.Hour, HolderID: long},
		"holder with NUL":    {Quantity: 1, TTL: time.Hour, HolderID: "\x00"},
		"no UTF-8":           {Quantity: 1, TTL: time.Hour, HolderID: "\xff"},
	} {
		if _, err := h.seats.Hold(t.Context(), h.by, "hamlet", all, opts); !errors.Is(err, reservations.ErrInvalid) {
			t.Errorf("%s: %v, want %v", name, err, reservations.ErrInvalid)
		}
	}
	handle := h.seat("hamlet", 1)
	for name, by := range map[string]reservations.Actor{
		"long":     reservations.By(h.tenant, audit.User(long)),
		"nobody's": reservations.By(uuid.Nil, audit.System()),
		"NUL":      h.by.WithReason("\x00"),
		"no UTF-8": h.by.WithCorrelation("\xff"),
	} {
		_, held := h.seats.Hold(t.Context(), by, "hamlet", all, good)
		_, extended := h.seats.Extend(t.Context(), by, handle, time.Minute)
		for _, err := range []error{held, extended, failure(h.seats.Commit(t.Context(), by, handle))} {
			if !errors.Is(err, reservations.ErrInvalid) {
				t.Errorf("%s actor: %v, want %v", name, err, reservations.ErrInvalid)
			}
		}
	}
	for _, parts := range [][]reservations.Part{nil, make([]reservations.Part, 1), make([]reservations.Part, 65)} {
		if _, err := reservations.HoldAll(t.Context(), h.DB, h.by, parts...); !errors.Is(err, reservations.ErrInvalid) {
			t.Errorf("%d parts: %v", len(parts), err)
		}
	}
	for _, kind := range []string{"", "Seat", "a..b", "inventory.variant", strings.Repeat("k", 65)} {
		if _, err := reservations.NewKernel(h.DB, seats{reservations.HeldAndCommitted[string, reservations.NoWindow](kind), 1}, reservations.Config{}); err == nil {
			t.Errorf("a kernel of the kind %q", kind)
		}
	}
}

// All holds of a call are made, or none, across kinds. After a rejection the
// caller's transaction is usable.
func TestHoldAllOrNothing(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.seat("hamlet", 4)
	h.Must(h.in(func(tx pgx.Tx) error {
		parts := []reservations.Part{
			h.seats.Part("hamlet", all, reservations.HoldOpts{Quantity: 2, TTL: time.Hour}),
			h.desks.Part("3rd", 1, reservations.HoldOpts{Quantity: 3, TTL: time.Hour}),
		}
		_, err := reservations.HoldAllTx(t.Context(), tx, h.by, parts...)
		h.wantInsufficient(err, 2, 1, 5)
		_, err = h.desks.HoldTx(t.Context(), tx, h.by, "3rd", 1, reservations.HoldOpts{Quantity: 3, TTL: time.Hour})
		h.Must(err) // the desks of the rejected call are free
		parts[0] = h.seats.Part("hamlet", all, reservations.HoldOpts{Quantity: 1, TTL: time.Hour})
		parts[1] = h.desks.Part("3rd", 2, reservations.HoldOpts{Quantity: 3, TTL: time.Minute})
		handles, err := reservations.HoldAllTx(t.Context(), tx, h.by, parts...)
		h.Must(err)
		seat, _ := handles[0].Reservation()
		desk, _ := handles[1].Reservation()
		if seat.ResourceKind != "venue.seat" || desk.Quantity != 3 {
			t.Error("the handles are not in the order of the parts")
		}
		return nil
	}))
	if n := h.Int(`SELECT count(*) FROM reservations`); n != 4 {
		t.Errorf("%d rows, want 4", n)
	}
}

// Every verb is observed once, in both forms, with its error.
func TestObserver(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	var observed []string
	config := reservations.Config{Observe: func(_ context.Context, verb string) func(error) {
		return func(err error) { observed = append(observed, verb+" "+errorText(err)) }
	}}
	k := kernelOf(h, seats{"venue.seat", 1}, config)
	ctx, opts := t.Context(), reservations.HoldOpts{Quantity: 1, TTL: time.Hour}
	handle, err := k.Hold(ctx, h.by, "hamlet", all, opts)
	h.Must(err)
	_, err = k.Hold(ctx, h.by, "hamlet", all, opts)
	h.wantInsufficient(err, 1, 0, 1)
	handle, err = k.Extend(ctx, h.by, handle, time.Minute)
	h.Must(err)
	h.Must(failure(k.Release(ctx, h.by, handle, reservations.Abandoned)))
	h.Must(h.in(func(tx pgx.Tx) error {
		handle, err := k.HoldTx(ctx, tx, h.by, "hamlet", all, opts)
		h.Must(err)
		handle, err = k.ExtendTx(ctx, tx, h.by, handle, time.Minute)
		h.Must(err)
		return failure(k.CommitTx(ctx, tx, h.by, handle))
	}))
	_, err = k.SweepOnce(ctx, 0)
	h.Must(err)
	_, err = reservations.HoldAll(ctx, h.DB, h.by, k.Part("hamlet", all, opts), k.Part("hamlet", all, opts))
	h.wantInsufficient(err, 1, 0, 1)
	_, err = k.PurgeEnded(ctx, reservations.PurgeOpts{Retention: time.Hour})
	h.Must(err)
	missing := []*reservations.Handle{k.Handle(h.tenant, uuid.New()), k.Handle(h.tenant, uuid.New())}
	if err := failure(reservations.CommitAll(ctx, h.DB, h.by, missing)); !errors.Is(err, reservations.ErrNotFound) {
		t.Errorf("%v, want %v", err, reservations.ErrNotFound)
	}
	want := []string{
		"hold done", "hold 0 of 1 left", "extend done", "release done", "hold done", "extend done", "commit done", "sweep done",
		"hold 0 of 1 left", "hold 0 of 1 left", "purge done", "commit not found", "commit not found",
	}
	if diff := cmp.Diff(want, observed); diff != "" {
		t.Errorf("observed (-want +got):\n%s", diff)
	}
}

// Each transition has one audit row, with tenant, actor, correlation id and
// reason. The last recorded state equals the row.
func TestRecord(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	ctx := t.Context()
	hold := func(ttl time.Duration) *reservations.Handle {
		handle, err := h.rooms.Hold(ctx, h.by, "a <b>", span{10, 12}, reservations.HoldOpts{Quantity: 1, TTL: ttl, HolderID: "cart 1"})
		h.Must(err)
		return handle
	}
	released := hold(time.Hour + 1) // a row has microseconds
	longer, err := h.rooms.Extend(ctx, h.by, released, time.Minute+1)
	h.Must(err)
	h.Must(failure(h.rooms.Release(ctx, h.by.WithReason(""), longer, reservations.PaymentFailed)))
	expired := hold(time.Hour)
	h.lapse(expired)
	_, err = h.rooms.SweepOnce(ctx, 0)
	h.Must(err)
	committed := hold(time.Hour)
	h.Must(failure(h.rooms.Commit(ctx, reservations.By(h.tenant, audit.Anonymous()), committed)))
	for handle, want := range map[*reservations.Handle][]audit.Entry{
		released: {
			{Action: "reservation.held", Origin: h.by.Origin},
			{Action: "reservation.extended", Origin: h.by.Origin},
			{Action: "reservation.released", Origin: audit.Origin{Actor: audit.User("ann"), CorrelationID: "c-1", Reason: "payment_failed"}},
		},
		expired: {
			{Action: "reservation.held", Origin: h.by.Origin},
			{Action: "reservation.expired", Origin: audit.Origin{Actor: audit.Job("expiry"), Reason: "ttl"}},
		},
		committed: {
			{Action: "reservation.held", Origin: h.by.Origin},
			{Action: "reservation.committed", Origin: audit.Origin{Actor: audit.Anonymous()}},
		},
	} {
		history, err := audit.History(ctx, h.DB, h.tenant, handle.ID())
		h.Must(err)
		var got []audit.Entry
		for _, r := range history {
			got = append(got, audit.Entry{Action: r.Action, Origin: r.Origin})
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("record (-want +got):\n%s", diff)
		}
		if handle != expired { // the deadline of the expired one was changed without a record
			h.wantReconstructed(handle.ID(), history)
		}
	}
	if foreign, err := audit.History(ctx, h.DB, uuid.New(), released.ID()); err != nil || len(foreign) > 0 {
		t.Errorf("another tenant reads %d rows, %v", len(foreign), err)
	}
}

// wantReconstructed compares the last recorded state with the row.
func (h *house) wantReconstructed(id uuid.UUID, history []audit.Record) {
	h.TB.Helper()
	state, err := audit.ReconstructState(history)
	h.Must(err)
	r := h.get(id)
	text := func(v any) string {
		raw, err := json.Marshal(v)
		h.Must(err)
		return string(raw)
	}
	want := map[string]string{
		"status": text(r.Status), "resource_kind": text(r.ResourceKind), "resource_key": text(r.ResourceKey), "holder_id": text(r.HolderID),
		"quantity": text(r.Quantity), "expires_at": text(r.ExpiresAt.UTC()), "resource_window": r.ResourceWindow,
	}
	var window span // jsonb has another order of members
	h.Must(json.Unmarshal(state["resource_window"], &window))
	state["resource_window"] = json.RawMessage(text(window))
	if r.ReleaseReason != "" {
		want["release_reason"] = text(r.ReleaseReason)
	}
	got := make(map[string]string)
	for name, member := range state {
		got[name] = text(member)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		h.TB.Errorf("row and record (-row +record):\n%s", diff)
	}
}

// Each of the four kinds of actor is recorded.
func TestActors(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	for i, by := range []reservations.Actor{
		reservations.By(h.tenant, audit.User("ann")), reservations.By(h.tenant, audit.System()), reservations.By(h.tenant, audit.Job("nightly")), reservations.By(h.tenant, audit.Anonymous()),
	} {
		handle, err := h.seats.Hold(t.Context(), by, string(rune('a'+i)), all, reservations.HoldOpts{Quantity: 1, TTL: time.Hour})
		h.Must(err)
		history, err := audit.History(t.Context(), h.DB, h.tenant, handle.ID())
		h.Must(err)
		if !slices.ContainsFunc(history, func(r audit.Record) bool { return r.Actor == by.Actor && r.TenantID == h.tenant }) {
			t.Errorf("%+v, want one row of %+v", history, by)
		}
	}
}

// A sweep ends a backlog of its own kind, in batches up to its limit, and never
// early. Two concurrent sweeps share a backlog.
func TestSweepOnce(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	k := kernelOf(h, seats{"venue.seat", 5}, reservations.Config{SweepBatch: 10})
	fill := func(kind string, n int, late string) {
		h.Exec(`INSERT INTO reservations (tenant_id, reservation_id, resource_kind, resource_key, holder_id, quantity, first_held_at, held_at, expires_at)
			SELECT gen_random_uuid(), gen_random_uuid(), $1, '"a"', 'h', 1, now(), now(), now() - $3::interval
			FROM generate_series(1, $2::int)`, kind, n, late)
	}
	fill("venue.seat", 85, "1 minute")
	fill("venue.seat", 3, "-1 minute")
	fill("house.desk", 7, "1 minute")
	for _, step := range []struct{ limit, want int }{{0, 10}, {-1, 10}, {5, 5}, {25, 25}} {
		report, err := k.SweepOnce(t.Context(), step.limit)
		if err != nil || report.ExpiredCount != step.want || report.ScannedAt.IsZero() {
			t.Errorf("limit %d: %+v, %v, want %d", step.limit, report, err, step.want)
		}
	}
	var counts [2]int
	var sweeps sync.WaitGroup
	for i := range counts {
		sweeps.Go(func() {
			report, err := k.SweepOnce(t.Context(), 1000)
			if err != nil {
				t.Error(err)
			}
			counts[i] = report.ExpiredCount
		})
	}
	sweeps.Wait()
	if counts[0]+counts[1] != 35 {
		t.Errorf("two concurrent sweeps expired %d and %d, want 35 together", counts[0], counts[1])
	}
	if n := h.Int(`SELECT count(*) FROM audit_log WHERE action = 'reservation.expired'`); n != 85 {
		t.Errorf("%d expiries recorded, want 85", n)
	}
	if n := h.Int(`SELECT count(*) FROM reservations WHERE status = 'held'`); n != 10 {
		t.Errorf("%d still held, want 3 that are early and 7 of another kind", n)
	}
}
