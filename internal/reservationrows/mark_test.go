package reservationrows_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/reservationrows"
)

// due returns the ids of the due seats.
func (h *fixture) due() []uuid.UUID {
	h.TB.Helper()
	due, _, err := reservationrows.Due(h.TB.Context(), h.DB, reservationrows.DueQuery{Kind: seat}, 1000)
	h.Must(err)
	return idsOf(due)
}

// wantDue fails the test unless these seats are due.
func (h *fixture) wantDue(when string, want ...uuid.UUID) {
	h.TB.Helper()
	if diff := cmp.Diff(want, h.due()); diff != "" {
		h.TB.Errorf("%s: due (-want +got):\n%s", when, diff)
	}
}

// moveMark moves the mark three times: the second time to about that of the
// first, if the transactions of the other tests on the server let it.
func (h *fixture) moveMark() {
	h.TB.Helper()
	for range 3 {
		h.Must(reservationrows.MoveMark(h.TB.Context(), h.DB, seat))
	}
}

// untilPassed moves the mark until it is past a deadline.
func (h *fixture) untilPassed(deadline time.Time) {
	h.TB.Helper()
	h.Until("the mark is past "+deadline.String(), func() bool {
		h.Must(reservationrows.MoveMark(h.TB.Context(), h.DB, seat))
		return h.passed(deadline)
	})
}

// passed reports whether the mark is past a deadline.
func (h *fixture) passed(deadline time.Time) bool {
	h.TB.Helper()
	return h.Int(`SELECT count(*) FROM reservation_marks WHERE resource_kind = $1 AND due_from > $2`, seat, deadline) == 1
}

// A mark moves past what has ended, and stays before what is held.
func TestMarkStaysBeforeWhatIsHeld(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	ended, held, later := h.hold("A1", "ann", 1, -time.Hour), h.hold("A2", "ann", 1, -time.Minute), h.hold("A3", "ann", 1, -time.Second)
	h.Must(h.end(reservationrows.Expired, ended, later))
	h.untilPassed(ended.ExpiresAt)
	h.moveMark()
	if h.passed(held.ExpiresAt) {
		t.Error("the mark is past a hold that is held")
	}
	h.wantDue("while a hold is held", held.ReservationID)
	h.Must(h.end(reservationrows.Expired, held))
	h.untilPassed(held.ExpiresAt)
	next := h.hold("A1", "bob", 1, time.Hour)
	h.moveMark()
	if h.passed(next.ExpiresAt) {
		t.Error("the mark is past a hold that is not due")
	}
}

// A hold becomes visible after its deadline, because its transaction was long or
// its TTL short. The mark waits for the transaction.
func TestMarkWaitsForOlderTransactions(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	long := h.Begin()
	_, err := long.Exec(t.Context(), reservationrows.EnterSQL)
	h.Must(err)
	wish := h.wish("A1", "ann", 1, -time.Minute)
	h.Must(reservationrows.HoldTx(t.Context(), long, []reservationrows.Hold{wish}))
	ended := h.hold("A2", "ann", 1, -time.Second)
	h.Must(h.end(reservationrows.Expired, ended))
	for range 3 {
		h.moveMark()
	}
	h.wantDue("before the commit")
	h.Must(long.Commit(t.Context()))
	h.wantDue("after the commit", wish.ReservationID)
	h.moveMark()
	h.wantDue("after another pass", wish.ReservationID)
	if h.passed(wish.ExpiresAt) {
		t.Error("the mark is past the hold")
	}
}

// The clock is set back, and a hold gets a deadline before the mark. The mark
// moves back, and a time that was noted before no longer moves it.
func TestHoldBeforeTheMark(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	h.untilPassed(time.Now().Add(-time.Hour))
	h.Must(h.in(func(tx pgx.Tx) error {
		return reservationrows.HoldTx(t.Context(), tx, []reservationrows.Hold{h.wish("A1", "ann", 1, time.Hour)})
	}))
	if !h.passed(time.Now().Add(-time.Hour)) {
		t.Error("a hold with a later deadline has moved the mark back")
	}
	early := h.hold("A2", "ann", 1, -2*time.Hour)
	h.wantDue("a hold before the mark", early.ReservationID)
	h.Must(reservationrows.MoveMark(t.Context(), h.DB, seat))
	h.wantDue("after a pass with the withdrawn note", early.ReservationID)
	h.moveMark()
	h.wantDue("after two more passes", early.ReservationID)
}

// A note from the future, or from another cluster, moves nothing and is
// replaced.
func TestOutdatedNoteIsReplaced(t *testing.T) {
	t.Parallel()
	for name, sql := range map[string]string{
		"set back":  `UPDATE reservation_marks SET noted_at = clock_timestamp() + interval '1 hour'`,
		"a restore": `UPDATE reservation_marks SET noted_xid = ((pg_current_xact_id()::text)::bigint + 1000000)::text::xid8`,
	} {
		h := newFixture(t)
		ended := h.hold("A1", "ann", 1, -time.Hour)
		h.Must(h.end(reservationrows.Expired, ended))
		h.Must(reservationrows.MoveMark(t.Context(), h.DB, seat))
		h.Exec(sql)
		h.Must(reservationrows.MoveMark(t.Context(), h.DB, seat))
		if h.passed(ended.ExpiresAt) {
			t.Errorf("%s: the outdated note has moved the mark", name)
		}
		h.untilPassed(ended.ExpiresAt)
	}
}

// A search reads neither what ended before the mark, nor more than it must to
// find what is due among what has ended. A backlog of ended holds with one
// deadline is read too.
func TestDueAmongWhatHasEnded(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	h.Exec(`INSERT INTO reservations (tenant_id, reservation_id, resource_kind, resource_key, holder_id, quantity, status,
	                                  first_held_at, held_at, expires_at, ended_at)
		SELECT $1, gen_random_uuid(), $2, 'A' || n % 7, 'h' || n, 1, 'committed', at, at, at + interval '1 minute', at
		FROM generate_series(1, 45000) AS n, (SELECT clock_timestamp() - interval '1 day' AS at) AS past`, h.tenant, seat)
	first, second := h.hold("A1", "ann", 1, -time.Hour), h.hold("A1", "ann", 1, -time.Minute)
	h.wantDue("behind ended holds", first.ReservationID, second.ReservationID)
	h.untilPassed(first.ExpiresAt.Add(-time.Hour))
	h.wantDue("from the mark on", first.ReservationID, second.ReservationID)
	before := h.entriesRead()
	h.wantDue("again", first.ReservationID, second.ReservationID)
	if read := h.entriesRead() - before; read > 100 {
		t.Errorf("%d index entries and rows are read to find two", read)
	}
}

// A statement stops reading among holds with one deadline. None of them is
// missed, and none is found twice.
func TestDueAtTheEndOfAScan(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	h.Exec(`INSERT INTO reservations (tenant_id, reservation_id, resource_kind, resource_key, holder_id, quantity, status, release_reason,
	                                  first_held_at, held_at, expires_at, ended_at)
		SELECT $1, gen_random_uuid(), $2, 'A1', 'h' || n, 1, CASE WHEN n <= 19950 THEN 'committed' ELSE 'held' END, NULL, at, at,
		       at + CASE WHEN n <= 19950 THEN n / 1000 * interval '1 second' WHEN n <= 20049 THEN interval '1 hour' ELSE interval '2 hours' END,
		       CASE WHEN n <= 19950 THEN at END
		FROM generate_series(1, 20079) AS n, (SELECT clock_timestamp() - interval '1 day' AS at) AS past`, h.tenant, seat)
	for limit, want := range map[int]int{1000: 129, 129: 129, 100: 100, 60: 60, 1: 1} {
		due, _, err := reservationrows.Due(t.Context(), h.DB, reservationrows.DueQuery{Kind: seat}, limit)
		h.Must(err)
		seen := make(map[uuid.UUID]bool)
		for _, r := range due {
			seen[r.ReservationID] = true
		}
		if len(due) != want || len(seen) != want {
			t.Errorf("%d found, %d of them distinct, want %d", len(due), len(seen), want)
		}
	}
}

// The mark moves past more than one statement reads, in one call.
func TestMarkMovesPastABacklog(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	h.Exec(`INSERT INTO reservations (tenant_id, reservation_id, resource_kind, resource_key, holder_id, quantity, status,
	                                  first_held_at, held_at, expires_at, ended_at)
		SELECT $1, gen_random_uuid(), $2, 'A1', 'h' || n, 1, 'committed', at, at, at + n * interval '1 second', at
		FROM generate_series(1, 120000) AS n, (SELECT clock_timestamp() - interval '10 days' AS at) AS past`, h.tenant, seat)
	last := h.hold("A1", "ann", 1, -time.Hour)
	h.Must(reservationrows.MoveMark(t.Context(), h.DB, seat))
	h.Until("the mark has moved", func() bool {
		h.Must(reservationrows.MoveMark(t.Context(), h.DB, seat))
		moved := h.Int(`SELECT count(*) FROM reservation_marks WHERE due_from > '-infinity'`) == 1
		if moved && h.Int(`SELECT count(*) FROM reservation_marks WHERE due_from = $1`, last.ExpiresAt) != 1 {
			t.Fatal("one call has not moved the mark to the first hold that is held")
		}
		return moved
	})
}

// An ending updates the row in its page and writes no index.
func TestEndingsAreHeapOnly(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	var held []reservationrows.Reservation
	for range 200 {
		held = append(held, h.hold("A1", "ann", 1, -time.Second))
	}
	h.Must(h.end(reservationrows.Expired, held[:100]...))
	h.Must(h.end(reservationrows.Committed, held[100:]...))
	h.entriesRead() // the sessions report their numbers
	if hot, all := h.Int(`SELECT n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'reservations'`),
		h.Int(`SELECT n_tup_upd FROM pg_stat_user_tables WHERE relname = 'reservations'`); all != 200 || hot < all*9/10 {
		t.Errorf("%d of %d updates were heap-only", hot, all)
	}
}
