package reservationrows_test

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/internal/reservationrows"
)

func idsOf(rs []reservationrows.Reservation) (ids []uuid.UUID) {
	for _, r := range rs {
		ids = append(ids, r.ReservationID)
	}
	return ids
}

// Due returns at most limit holds of one kind that are past their deadline, the
// longest due first.
func TestDue(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	second, first := h.hold("A1", "ann", 2, -time.Minute), h.hold("A2", "bob", 3, -time.Hour)
	third := h.hold("A1", "bob", 5, -time.Second)
	live := h.hold("A1", "ann", 7, time.Hour)
	h.Must(h.end(reservationrows.Expired, h.hold("A1", "ann", 11, -time.Minute)))
	h.Exec(`UPDATE reservations SET resource_kind = 'hall.box' WHERE reservation_id = $1`, h.hold("A1", "ann", 13, -time.Minute).ReservationID)
	neighbour := *h
	neighbour.tenant = uuid.New()
	theirs := neighbour.hold("A1", "ann", 17, -2*time.Hour)

	due, _, err := reservationrows.Due(t.Context(), h.DB, reservationrows.DueQuery{Kind: seat}, 10)
	h.Must(err)
	if diff := cmp.Diff([]uuid.UUID{theirs.ReservationID, first.ReservationID, second.ReservationID, third.ReservationID}, idsOf(due)); diff != "" {
		t.Errorf("due (-want +got):\n%s", diff)
	}
	due, _, err = reservationrows.Due(t.Context(), h.DB, reservationrows.DueQuery{Kind: seat}, 2)
	if h.Must(err); len(due) != 2 {
		t.Errorf("%d due, want the 2 asked for", len(due))
	}

	pass := reservationrows.DueQuery{Kind: seat, From: h.get(second.ReservationID).ExpiresAt}
	due, _, err = reservationrows.Due(t.Context(), h.DB, pass, 10)
	h.Must(err)
	if diff := cmp.Diff([]uuid.UUID{second.ReservationID, third.ReservationID}, idsOf(due)); diff != "" {
		t.Errorf("due from the second deadline on (-want +got):\n%s", diff)
	}
	pass = reservationrows.DueQuery{Kind: seat, Except: []reservationrows.Resource{{TenantID: h.tenant, ResourceKey: "A1"}, {TenantID: h.tenant, ResourceKey: "Z9"}}}
	due, _, err = reservationrows.Due(t.Context(), h.DB, pass, 10)
	h.Must(err)
	if diff := cmp.Diff([]uuid.UUID{theirs.ReservationID, first.ReservationID}, idsOf(due)); diff != "" {
		t.Errorf("due but for A1 (-want +got):\n%s", diff)
	}
	pass = reservationrows.DueQuery{Kind: seat, ExceptTenants: []uuid.UUID{uuid.New(), h.tenant}}
	due, _, err = reservationrows.Due(t.Context(), h.DB, pass, 10)
	h.Must(err)
	if diff := cmp.Diff([]uuid.UUID{theirs.ReservationID}, idsOf(due)); diff != "" {
		t.Errorf("due but for one tenant (-want +got):\n%s", diff)
	}

	now := live.HeldAt.Add(time.Minute) // the time at which it was made
	ofKeys := reservationrows.NewDueOfKeys(seat, `'-infinity'::timestamptz`, "")
	a1 := reservationrows.DueLimit{Resource: reservationrows.Resource{TenantID: h.tenant, ResourceKey: "A1"}, Limit: 10}
	due, err = ofKeys.Read(t.Context(), h.DB, a1, now)
	h.Must(err)
	if diff := cmp.Diff([]uuid.UUID{second.ReservationID, third.ReservationID}, idsOf(due)); diff != "" {
		t.Errorf("due of A1 (-want +got):\n%s", diff)
	}
	due, err = ofKeys.Read(t.Context(), h.DB, a1, now.Add(-30*time.Second))
	h.Must(err)
	if diff := cmp.Diff([]uuid.UUID{second.ReservationID}, idsOf(due)); diff != "" {
		t.Errorf("due of A1 half a minute ago (-want +got):\n%s", diff)
	}

	tenants := []uuid.UUID{h.tenant, h.tenant, h.tenant, neighbour.tenant}
	sums, err := ofKeys.Sum(t.Context(), h.DB, tenants, []string{"A1", "A2", "Z9", "A1"}, now)
	h.Must(err)
	got := make(map[reservationrows.Sum]bool)
	for _, s := range sums {
		got[s] = true
	}
	want := map[reservationrows.Sum]bool{{h.tenant, "A1", 7}: true, {h.tenant, "A2", 3}: true, {neighbour.tenant, "A1", 17}: true}
	if diff := cmp.Diff(want, got); diff != "" || len(sums) != len(want) {
		t.Errorf("sums (-want +got):\n%s", diff)
	}
}

// A hold is returned as expired from its deadline on, by Get and by ByHolder,
// before its expiry is recorded. A hold that has ended is returned as it ended.
func TestDueIsShownAsExpired(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	due, live, released := h.hold("A1", "ann", 1, -time.Second), h.hold("A1", "ann", 1, time.Hour), h.hold("A1", "ann", 1, -time.Second)
	h.Must(h.end(reservationrows.Released, released))
	want := due
	want.Status, want.ReleaseReason = reservationrows.Expired, reservationrows.TTL
	shown := []reservationrows.Reservation{want, live, h.get(released.ReservationID)}
	for _, r := range shown {
		got, err := reservationrows.Get(t.Context(), h.DB, h.tenant, r.ReservationID)
		h.Must(err)
		if diff := cmp.Diff(r, got); diff != "" {
			t.Errorf("alone (-want +got):\n%s", diff)
		}
	}
	got, err := reservationrows.ByHolder(t.Context(), h.DB, h.tenant, seat, "ann", uuid.Max, 10)
	h.Must(err)
	byID := func(a, b reservationrows.Reservation) int {
		return bytes.Compare(b.ReservationID[:], a.ReservationID[:])
	}
	slices.SortFunc(shown, byID)
	if diff := cmp.Diff(shown, got); diff != "" {
		t.Errorf("among the holder's (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(due, h.get(due.ReservationID)); diff != "" {
		t.Errorf("the row itself (-want +got):\n%s", diff)
	}
}

// A hold is due at the very moment of its deadline.
func TestDueAtTheMoment(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 2, 12, 0, 0, 0, time.UTC)
	r := reservationrows.Reservation{Status: reservationrows.Held, ExpiresAt: at}
	for _, c := range []struct {
		now  time.Time
		due  bool
		name string
	}{{at.Add(-time.Microsecond), false, "before"}, {at, true, "at"}, {at.Add(time.Microsecond), true, "after"}} {
		if r.Due(c.now) != c.due {
			t.Errorf("due %s its deadline: %t", c.name, !c.due)
		}
	}
	r.Status = reservationrows.Committed
	if r.Due(at) {
		t.Error("a reservation that has ended is due")
	}
}

// The statements that run all the time read only the rows that they return,
// however many rows are held and not due, or ended and not old.
func TestScansAreBounded(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	h.Exec(`INSERT INTO reservations (tenant_id, reservation_id, resource_kind, resource_key, holder_id, quantity, status,
	                                  release_reason, first_held_at, held_at, expires_at, ended_at)
		SELECT $1, gen_random_uuid(), $2, 'A' || n % 7, 'h' || n, 1, CASE n % 2 WHEN 0 THEN 'held' ELSE 'expired' END,
		       CASE n % 2 WHEN 1 THEN 'ttl' END, now, now, now + interval '1 hour', CASE n % 2 WHEN 1 THEN now END
		FROM generate_series(1, 20000) AS n, (SELECT clock_timestamp() AS now) AS clock`, h.tenant, seat)
	h.Exec(`ANALYZE reservations`)
	due := h.hold("A1", "ann", 1, -time.Second)
	old := h.hold("A1", "ann", 1, -2*time.Hour)
	h.Must(h.end(reservationrows.Expired, old))
	h.Exec(`UPDATE reservations SET ended_at = ended_at - interval '1 day', expires_at = expires_at - interval '1 day' WHERE reservation_id = $1`, old.ReservationID)

	for name, pass := range map[string]func() int{
		"due": func() int {
			found, _, err := reservationrows.Due(t.Context(), h.DB, reservationrows.DueQuery{Kind: seat}, 500)
			h.Must(err)
			if len(found) != 1 || found[0].ReservationID != due.ReservationID {
				t.Errorf("%d due, want the one", len(found))
			}
			return len(found)
		},
		"purge": func() int {
			purged, err := reservationrows.PurgeEnded(t.Context(), h.DB, reservationrows.Purge{Kind: seat, Retention: time.Hour}, 500)
			h.Must(err)
			return int(purged.Count)
		},
	} {
		before := h.entriesRead()
		if n := pass(); n != 1 {
			t.Errorf("%s: %d rows, want 1", name, n)
		}
		if read := h.entriesRead() - before; read > 100 {
			t.Errorf("%s read %d index entries and rows to find one", name, read)
		}
	}
}

// entriesRead is the number of entries of reservations read so far, by index or
// by row. A session reports its number when it ends, at the latest.
func (h *fixture) entriesRead() int64 {
	h.TB.Helper()
	h.DB.Reset()
	pgtest.Until(h.TB, "the other sessions have ended", func() bool {
		return h.Int(`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()`) == 0
	})
	return h.Int(`
		SELECT sum(idx_tup_read)::bigint + (SELECT seq_tup_read FROM pg_stat_user_tables WHERE relname = 'reservations')
		FROM pg_stat_user_indexes
		WHERE relname = 'reservations'`)
}

func TestByHolder(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	first, second := h.hold("A1", "ann", 1, time.Hour), h.hold("A2", "ann", 1, -time.Second)
	third := h.hold("A1", "ann", 1, time.Hour)
	h.hold("A1", "bob", 1, time.Hour)
	h.Must(h.end(reservationrows.Released, first))
	all, err := reservationrows.ByHolder(t.Context(), h.DB, h.tenant, seat, "ann", uuid.Max, 10)
	h.Must(err)
	if diff := cmp.Diff([]uuid.UUID{third.ReservationID, second.ReservationID, first.ReservationID}, idsOf(all)); diff != "" {
		t.Errorf("of ann (-want +got):\n%s", diff)
	}
	older, err := reservationrows.ByHolder(t.Context(), h.DB, h.tenant, seat, "ann", third.ReservationID, 1)
	h.Must(err)
	if diff := cmp.Diff([]uuid.UUID{second.ReservationID}, idsOf(older)); diff != "" {
		t.Errorf("the one of ann before her third (-want +got):\n%s", diff)
	}
	held, err := reservationrows.HeldByHolder(t.Context(), h.DB, h.tenant, seat, "ann")
	h.Must(err)
	if diff := cmp.Diff([]uuid.UUID{second.ReservationID, third.ReservationID}, idsOf(held)); diff != "" {
		t.Errorf("held by ann (-want +got):\n%s", diff)
	}
	for _, none := range []struct {
		tenant       uuid.UUID
		kind, holder string
	}{{uuid.New(), seat, "ann"}, {h.tenant, "hall.box", "ann"}, {h.tenant, seat, "cat"}} {
		all, err := reservationrows.ByHolder(t.Context(), h.DB, none.tenant, none.kind, none.holder, uuid.Max, 10)
		if h.Must(err); len(all) != 0 {
			t.Errorf("%+v has %d", none, len(all))
		}
	}
	h.Exec(`INSERT INTO reservations (tenant_id, reservation_id, resource_kind, resource_key, holder_id, quantity, first_held_at, held_at, expires_at)
		SELECT $1, gen_random_uuid(), $2, 'A1', 'hoarder', 1, now, now, now + interval '1 hour'
		FROM generate_series(1, $3::integer) AS n, (SELECT clock_timestamp() AS now) AS clock`, h.tenant, seat, reservationrows.HeldMax+1)
	if _, err := reservationrows.HeldByHolder(t.Context(), h.DB, h.tenant, seat, "hoarder"); err == nil {
		t.Error("a part of the held reservations was returned as all of them")
	}
}

// The unseen expiries of a holder are reported until the key is held again or
// acknowledged: by key, by kind, by tenant.
func TestLost(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	lost := func(holder string) (key string) {
		h.Must(h.in(func(tx pgx.Tx) error {
			b := &pgx.Batch{}
			holders := []reservationrows.Holder{{TenantID: h.tenant, HolderID: "nobody"}, {TenantID: h.tenant, HolderID: holder}}
			key = ""
			unseen := reservationrows.QueueExpiredUnseen(b, seat, holders)
			if err := tx.SendBatch(t.Context(), b).Close(); err != nil {
				return err
			}
			for _, lost := range *unseen {
				if lost.Index != 1 {
					t.Errorf("holder %d lost %q", lost.Index, lost.ResourceKey)
				}
				key = lost.ResourceKey
			}
			return nil
		}))
		return key
	}
	dismiss := func(holder, key string) {
		h.Must(h.in(func(tx pgx.Tx) error {
			b := &pgx.Batch{}
			reservationrows.QueueAcknowledge(b, seat, []reservationrows.HolderKey{{TenantID: h.tenant, HolderID: holder, ResourceKey: key}})
			return tx.SendBatch(t.Context(), b).Close()
		}))
	}
	want := func(when, holder, key string) {
		t.Helper()
		if got := lost(holder); got != key {
			t.Errorf("%s, %s lost %q, want %q", when, holder, got, key)
		}
	}
	h.hold("A1", "bob", 1, time.Hour)
	a1 := h.hold("A1", "ann", 1, -30*time.Second)
	want("unswept", "ann", "A1")
	want("unswept", "bob", "")
	h.Must(h.end(reservationrows.Expired, a1))
	want("swept", "ann", "A1")
	dismiss("bob", "")
	dismiss("ann", "A2")
	want("another key acknowledged", "ann", "A1")
	records, err := audit.History(t.Context(), h.DB, h.tenant, a1.ReservationID)
	h.Must(err)
	dismiss("ann", "A1")
	want("dismissed", "ann", "")
	after, err := audit.History(t.Context(), h.DB, h.tenant, a1.ReservationID)
	if h.Must(err); len(after) != len(records) {
		t.Error("an acknowledgement is not a transition, but has an audit row")
	}
	h.Must(h.end(reservationrows.Expired, h.hold("A2", "ann", 1, -30*time.Second), h.hold("A3", "ann", 1, -30*time.Second)))
	dismiss("ann", "")
	want("all acknowledged", "ann", "")

	h.Must(h.end(reservationrows.Expired, h.hold("A4", "ann", 1, -30*time.Second)))
	want("lost", "ann", "A4")
	again := h.hold("A4", "ann", 1, time.Hour)
	h.Exec(`UPDATE reservations SET held_at = clock_timestamp() WHERE reservation_id = $1`, again.ReservationID)
	want("held again", "ann", "")
	h.Must(h.end(reservationrows.Committed, again))
	want("held again and committed", "ann", "")
}

func TestPurgeEnded(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	aged := func(key string, age time.Duration) reservationrows.Reservation {
		r := h.hold(key, "ann", 1, time.Hour)
		h.Must(h.end(reservationrows.Released, r))
		h.Exec(`UPDATE reservations SET ended_at = clock_timestamp() - $2::interval, expires_at = clock_timestamp() - $2::interval WHERE reservation_id = $1`, r.ReservationID, age)
		return r
	}
	third, first, second := aged("A3", 25*time.Hour), aged("A1", 50*time.Hour), aged("A2", 30*time.Hour)
	young, held := aged("A4", 23*time.Hour), h.hold("A5", "ann", 1, -48*time.Hour)
	box := aged("A6", 90*time.Hour)
	h.Exec(`UPDATE reservations SET resource_kind = 'hall.box' WHERE reservation_id = $1`, box.ReservationID)
	busy := h.Begin()
	_, err := busy.Exec(t.Context(), `SELECT FROM reservations WHERE reservation_id = $1 FOR UPDATE`, second.ReservationID)
	h.Must(err)
	for i, want := range []struct {
		n    int64
		left []uuid.UUID
	}{
		{1, []uuid.UUID{third.ReservationID, second.ReservationID, young.ReservationID, held.ReservationID, box.ReservationID}},
		{1, []uuid.UUID{second.ReservationID, young.ReservationID, held.ReservationID, box.ReservationID}},
		{0, []uuid.UUID{second.ReservationID, young.ReservationID, held.ReservationID, box.ReservationID}},
	} {
		purged, err := reservationrows.PurgeEnded(t.Context(), h.DB, reservationrows.Purge{Kind: seat, Retention: 24 * time.Hour}, 1)
		if h.Must(err); purged.Count != want.n {
			t.Errorf("purge %d: %d deleted, want %d", i, purged.Count, want.n)
		}
		if n := h.Int(`SELECT count(*) FROM reservations WHERE reservation_id = ANY ($1)`, want.left); n != int64(len(want.left)) {
			t.Errorf("purge %d: %d of %d left", i, n, len(want.left))
		}
	}
	if n := h.Int(`SELECT count(*) FROM reservations WHERE reservation_id = $1`, first.ReservationID); n != 0 {
		t.Error("the oldest is still there")
	}
}
