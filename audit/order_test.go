package audit_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/auditrows"
	"github.com/holdfast/holdfast/internal/pgtest"
)

// Of two transactions on a target, the one that began first writes last. A
// third one that began in between is open. A reader by windows of transaction
// ids ends a window where all transactions have ended. It finds the target's
// second row in the first window, and its first row in the next one. The tail
// delivers both in their order.
func TestWindowsOfTransactionsWouldDisorder(t *testing.T) {
	t.Parallel()
	db, target := pgtest.New(t), uuid.New()
	sub := subscribe(t, db, "orders", audit.SubscriptionConfig{FromBeginning: true})
	windows := &windowReader{t: t, db: db, from: ask[int64](t, db, settledSQL)}

	late, idle, early := begin(t, db), begin(t, db), begin(t, db)
	if l, i, e := late.enter(), idle.enter(), early.enter(); l >= i || i >= e {
		t.Fatalf("transactions %d, %d, %d are not in their order", l, i, e)
	}
	early.write(step(target, "1"))
	early.commit()
	late.write(step(target, "2"))
	late.commit()

	var tail collector
	look := func() {
		if _, err := sub.RunOnce(t.Context(), tail.take); err != nil {
			t.Fatal(err)
		}
	}
	pgtest.Until(t, "the first window is read", func() bool { windows.read(); return len(windows.ids) > 0 })
	look()
	look()
	if len(tail.ids) > 0 {
		t.Errorf("the tail delivered %v while a transaction was open that might have drawn a lower id", tail.ids)
	}
	idle.commit()
	pgtest.Until(t, "the second window is read", func() bool { windows.read(); return len(windows.ids) > 1 })
	pgtest.Until(t, "the tail delivered", func() bool { look(); return len(tail.ids) > 1 })

	inOrder := ask[[]int64](t, db, `SELECT array_agg(audit_id ORDER BY audit_id) FROM audit_log WHERE target_id = $1`, target)
	if !slices.Equal(tail.ids, inOrder) {
		t.Errorf("the tail delivered %v, want %v", tail.ids, inOrder)
	}
	slices.Reverse(inOrder)
	if !slices.Equal(windows.ids, inOrder) {
		t.Errorf("windows delivered %v: want the wrong order, %v, or this test proves nothing", windows.ids, inOrder)
	}
}

const settledSQL = `SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint`

// windowReader reads all rows of transactions in [last horizon, horizon), in
// the order of their audit ids.
type windowReader struct {
	t    *testing.T
	db   *pgxpool.Pool
	from int64
	ids  []int64
}

const windowSQL = `SELECT audit_id FROM audit_log WHERE xmin::text::bigint >= $1 AND xmin::text::bigint < $2 ORDER BY audit_id`

func (w *windowReader) read() {
	w.t.Helper()
	to := ask[int64](w.t, w.db, settledSQL)
	rows, err := w.db.Query(w.t.Context(), windowSQL, w.from, to)
	if err != nil {
		w.t.Fatal(err)
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		w.t.Fatal(err)
	}
	w.ids, w.from = append(w.ids, ids...), to
}

// A transaction must have an id before it draws an audit_id, or the tail passes
// its row. A trigger stops a writer, which has locked nothing before, between
// the two.
func TestWriterHasItsIDBeforeItDraws(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	execute(t, db, `CREATE TABLE gate ()`)
	execute(t, db, `CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN LOCK gate IN SHARE MODE; RETURN NEW; END $$`)
	writeSteps(t, db, 1) // from now on the sequence can draw ids without WAL
	execute(t, db, `CREATE TRIGGER wait BEFORE INSERT ON audit_log FOR EACH ROW EXECUTE FUNCTION wait()`)
	gate := begin(t, db)
	if _, err := gate.tx.Exec(t.Context(), `LOCK gate IN SHARE ROW EXCLUSIVE MODE`); err != nil {
		t.Fatal(err)
	}
	written := make(chan error, 1)
	go func() { written <- write(t, db, step(uuid.New(), "1")) }()
	pgtest.Until(t, "the writer waits", func() bool {
		return ask[bool](t, db, `SELECT EXISTS (SELECT FROM pg_locks WHERE relation = 'gate'::regclass AND NOT granted)`)
	})
	sub := subscribe(t, db, "orders", audit.SubscriptionConfig{FromBeginning: true})
	for range 5 {
		if _, err := sub.RunOnce(t.Context(), (&collector{}).take); err != nil {
			t.Fatal(err)
		}
	}
	if s := state(t, db, "orders"); s.Position > 1 {
		t.Errorf("the tail is at %d, past an id whose row is not written", s.Position)
	}
	gate.commit()
	if err := <-written; err != nil {
		t.Fatal(err)
	}
	pgtest.Until(t, "both rows are delivered", func() bool {
		_, err := sub.RunOnce(t.Context(), (&collector{}).take)
		return err == nil && state(t, db, "orders").Lag == 0
	})
}

// A new subscription with FromNow receives only the records written after it
// was made.
func TestFromNow(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	writeSteps(t, db, 3)
	sub := subscribe(t, db, "late", audit.SubscriptionConfig{})
	if s := state(t, db, "late"); s.Lag != 0 || s.LagSeconds != 0 || s.Position != 3 || s.DeliveredAt != nil {
		t.Errorf("a new subscription: %+v", s)
	}
	writeSteps(t, db, 2)
	if s := state(t, db, "late"); s.Lag != 2 || s.LagSeconds <= 0 {
		t.Errorf("after two records: %+v", s)
	}
	if ids := deliver(t, sub, 2); !slices.Equal(ids, []int64{4, 5}) {
		t.Errorf("delivered %v, want 4 and 5", ids)
	}
	again := subscribe(t, db, "late", audit.SubscriptionConfig{FromBeginning: true}) // it continues at its position
	if report, err := again.RunOnce(t.Context(), (&collector{}).take); err != nil || report != (audit.TailReport{}) {
		t.Errorf("opened again: %+v, %v", report, err)
	}
	if s := state(t, db, "late"); s.Lag != 0 || s.Position != 5 || s.DeliveredAt == nil || s.DeliveredAt.IsZero() {
		t.Errorf("after the delivery: %+v", s)
	}
}

// Entries of a call are in its order, also where transitions of reservations and
// others alternate.
func TestEntriesOfBothFormsAreInOrder(t *testing.T) {
	t.Parallel()
	db, target := pgtest.New(t), uuid.New()
	reservation := &auditrows.Reservation{ResourceKind: "hall.seat", ResourceKey: "A1", HolderID: "guest", Quantity: 1, ExpiresAt: time.Now()}
	want := []string{"reservation.held", "seat.cleaned", "seat.checked", "reservation.extended", "seat.cleaned"}
	entries := make([]audit.Entry, len(want))
	for i, action := range want {
		entries[i] = audit.Entry{TargetID: target, Action: action}
		if strings.HasPrefix(action, "reservation.") {
			entries[i].Reservation = reservation
		} else {
			entries[i].After = json.RawMessage(`{}`)
		}
	}
	pgtest.Must(t, pgx.BeginFunc(t.Context(), db, func(tx pgx.Tx) error { return audit.WriteTx(t.Context(), tx, entries) }))
	got := ask[[]string](t, db, `SELECT array_agg(action ORDER BY audit_id) FROM audit_log WHERE target_id = $1`, target)
	if !slices.Equal(got, want) {
		t.Errorf("recorded %q, want %q", got, want)
	}
}
