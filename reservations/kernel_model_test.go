package reservations_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"pgregory.net/rapid"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/reservations"
)

// modelHold is a hold as plain values. Its kind is rooms (overlapping windows,
// committed holds count) or desks (disjoint windows, committed holds do not
// count).
type modelHold struct {
	room     bool
	key      string
	window   span
	quantity int64
	status   reservations.Status
	due      bool
	lifetime time.Duration
	actions  []string
	handle   *reservations.Handle
}

// model is a model of a kernel: a list of holds, counted each time.
type model struct {
	t      *rapid.T
	h      *house
	tenant uuid.UUID
	by     reservations.Actor
	rooms  *roomKernel
	desks  *deskKernel
	holds  map[uuid.UUID]*modelHold
}

const (
	modelRooms   = 4
	modelDesks   = 3
	modelMinutes = 90 // the lifetime cap
)

func (m *model) capacity(room bool) int64 {
	if room {
		return modelRooms
	}
	return modelDesks
}

// taken returns the units that are taken at the hour of the window with the
// most of them: those held and not due, and those committed if they count.
func (m *model) taken(ask *modelHold) (most int64) {
	for hour := ask.window.From; hour < ask.window.To; hour++ {
		var taken int64
		for _, r := range m.holds {
			counts := r.status == reservations.Held && !r.due || r.status == reservations.Committed && r.room
			if counts && r.room == ask.room && r.key == ask.key && r.window.overlaps(span{hour, hour + 1}) {
				taken += r.quantity
			}
		}
		most = max(most, taken)
	}
	return most
}

func (m *model) hold(*rapid.T) {
	ask := &modelHold{
		room: rapid.Bool().Draw(m.t, "room"), key: rapid.SampledFrom([]string{"a", "b"}).Draw(m.t, "key"),
		quantity: rapid.Int64Range(1, 3).Draw(m.t, "quantity"), status: reservations.Held, lifetime: time.Hour,
		actions: []string{"reservation.held"},
	}
	from := rapid.IntRange(0, 3).Draw(m.t, "from")
	ask.window = span{from, from + 1}
	var err error
	if ask.room {
		ask.window.To += rapid.IntRange(0, 1).Draw(m.t, "longer")
		ask.handle, err = m.rooms.Hold(m.h.TB.Context(), m.by, ask.key, ask.window, reservations.HoldOpts{Quantity: ask.quantity, TTL: ask.lifetime})
	} else {
		ask.handle, err = m.desks.Hold(m.h.TB.Context(), m.by, ask.key, from, reservations.HoldOpts{Quantity: ask.quantity, TTL: ask.lifetime})
	}
	capacity := m.capacity(ask.room)
	if available := capacity - m.taken(ask); ask.quantity > available {
		got, ok := errors.AsType[*reservations.InsufficientError](err)
		if !ok || got.Requested != ask.quantity || got.Available != max(available, 0) || got.Capacity != capacity {
			m.t.Fatalf("hold %+v: %v, want %d of %d available", ask, err, available, capacity)
		}
		return
	}
	if err != nil {
		m.t.Fatalf("hold %+v: %v", ask, err)
	}
	m.holds[ask.handle.ID()] = ask
	m.adoptExpired(ask)
}

// adoptExpired reads from the rows which due holds the new one has expired.
// They were enough, because the new hold succeeded.
func (m *model) adoptExpired(made *modelHold) {
	for id, r := range m.holds {
		if r.status == reservations.Held && r.due && r.room == made.room && r.key == made.key && m.status(id) == reservations.Expired {
			r.status, r.actions = reservations.Expired, append(r.actions, "reservation.expired")
		}
	}
}

func (m *model) status(id uuid.UUID) reservations.Status {
	return m.h.of(m.tenant, id).Status
}

func (m *model) pick() *modelHold {
	if len(m.holds) == 0 {
		return nil
	}
	ids := slices.SortedFunc(maps.Keys(m.holds), func(a, b uuid.UUID) int { return slices.Compare(a[:], b[:]) })
	return m.holds[rapid.SampledFrom(ids).Draw(m.t, "hold")]
}

// fresh makes a new handle, as another process does.
func (m *model) fresh(r *modelHold) *reservations.Handle {
	if r.room {
		return m.rooms.Handle(m.tenant, r.handle.ID())
	}
	return m.desks.Handle(m.tenant, r.handle.ID())
}

// want checks that the error of a verb is nil if the model allows the call,
// else the model's error.
func (m *model) want(r *modelHold, verb string, err error) (done bool) {
	actual := r.status
	if r.due && r.status == reservations.Held {
		actual = reservations.Expired
	}
	if actual == reservations.Held {
		if err != nil {
			m.t.Fatalf("%s %+v: %v", verb, r, err)
		}
		return true
	}
	if !conflictWith(actual)(err) {
		m.t.Fatalf("%s %+v: %v, want a conflict with %s", verb, r, err, actual)
	}
	return false
}

func (m *model) commit(*rapid.T) {
	if r := m.pick(); r != nil {
		verb := m.rooms.Commit
		if !r.room {
			verb = m.desks.Commit
		}
		if m.want(r, "commit", failure(verb(m.h.TB.Context(), m.by, m.fresh(r)))) {
			r.status, r.actions = reservations.Committed, append(r.actions, "reservation.committed")
		}
	}
}

func (m *model) release(*rapid.T) {
	if r := m.pick(); r != nil {
		verb := m.rooms.Release
		if !r.room {
			verb = m.desks.Release
		}
		wasDue := r.due && r.status == reservations.Held
		switch done := m.want(r, "release", failure(verb(m.h.TB.Context(), m.by, m.fresh(r), reservations.Abandoned))); {
		case done:
			r.status, r.actions = reservations.Released, append(r.actions, "reservation.released")
		case wasDue:
			r.status, r.actions = reservations.Expired, append(r.actions, "reservation.expired")
		}
	}
}

func (m *model) extend(*rapid.T) {
	r := m.pick()
	if r == nil {
		return
	}
	verb := m.rooms.Extend
	if !r.room {
		verb = m.desks.Extend
	}
	minutes := rapid.IntRange(1, 40).Draw(m.t, "minutes")
	longer := time.Duration(minutes) * time.Minute
	_, err := verb(m.h.TB.Context(), m.by, m.fresh(r), longer)
	if r.status == reservations.Held && !r.due && r.lifetime+longer > modelMinutes*time.Minute {
		if !errors.Is(err, reservations.ErrLifetimeExceeded) {
			m.t.Fatalf("extend %+v by %s: %v, want the cap", r, longer, err)
		}
		return
	}
	if m.want(r, "extend", err) {
		r.lifetime += longer
		r.actions = append(r.actions, "reservation.extended")
	}
}

// lapse makes a hold due.
func (m *model) lapse(*rapid.T) {
	if r := m.pick(); r != nil && r.status == reservations.Held {
		r.due = true
		m.h.lapse(r.handle)
	}
}

// sweep expires all due holds of both kinds, or of one kind and not of the
// other. It never expires a hold early.
func (m *model) sweep(*rapid.T) {
	room := rapid.Bool().Draw(m.t, "rooms")
	sweep := m.rooms.SweepOnce
	if !room {
		sweep = m.desks.SweepOnce
	}
	var want int
	for _, r := range m.holds {
		if r.room == room && r.status == reservations.Held && r.due {
			want++
			r.status, r.actions = reservations.Expired, append(r.actions, "reservation.expired")
		}
	}
	report, err := sweep(m.h.TB.Context(), 100)
	if err != nil || report.ExpiredCount != want {
		m.t.Fatalf("sweep: %+v, %v, want %d", report, err, want)
	}
}

const modelSQL = `
SELECT r.reservation_id, r.status,
       (SELECT string_agg(a.action, ' ' ORDER BY a.audit_id)
        FROM audit_log a
        WHERE a.tenant_id = r.tenant_id AND a.target_id = r.reservation_id) AS actions
FROM reservations r
WHERE r.tenant_id = $1`

// check compares every row and its record with the model.
func (m *model) check(*rapid.T) {
	type row struct {
		ID      uuid.UUID
		Status  reservations.Status
		Actions string
	}
	rows, err := m.h.DB.Query(m.h.TB.Context(), modelSQL, m.tenant)
	if err != nil {
		m.t.Fatal(err)
	}
	got, err := pgx.CollectRows(rows, pgx.RowToStructByPos[row])
	if err != nil || len(got) != len(m.holds) {
		m.t.Fatalf("%d rows, want %d: %v", len(got), len(m.holds), err)
	}
	for _, r := range got {
		if want := m.holds[r.ID]; r.Status != want.status || r.Actions != joined(want.actions) {
			m.t.Fatalf("%+v, want %+v", r, want)
		}
	}
}

func joined(actions []string) string {
	text := fmt.Sprint(actions)
	return text[1 : len(text)-1]
}

// For random verbs in any order, the kernel makes the same holds as the model,
// rejects the same calls with the same numbers, and records each step.
func TestKernelModel(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.hasty()
	config := reservations.Config{LifetimeMax: modelMinutes * time.Minute, SweepBatch: 2}
	roomKernel := kernelOf(h, rooms{"house.room", modelRooms}, config)
	deskKernel := kernelOf(h, desks{HeldOnly: "house.desk", capacity: modelDesks}, config)
	rapid.Check(t, pgtest.Fewer(func(rt *rapid.T) {
		tenant := uuid.New()
		m := &model{rt, h, tenant, reservations.By(tenant, audit.User("ann")), roomKernel, deskKernel, make(map[uuid.UUID]*modelHold)}
		defer h.Exec(`UPDATE reservations SET expires_at = 'infinity' WHERE tenant_id = $1 AND status = 'held'`, tenant) // for the sweeps of the next check
		rt.Repeat(map[string]func(*rapid.T){
			"hold": m.hold, "hold again": m.hold, "commit": m.commit, "release": m.release, "extend": m.extend,
			"lapse": m.lapse, "sweep": m.sweep, "": m.check,
		})
	}))
	orphans := h.Int(`SELECT count(*) FROM reservations r WHERE NOT EXISTS (SELECT FROM audit_log a WHERE a.target_id = r.reservation_id AND a.actor_kind = $1)`, "user")
	if orphans > 0 {
		t.Errorf("%d holds without a record", orphans)
	}
}
