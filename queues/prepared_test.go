package queues_test

import (
	"testing"

	"github.com/google/uuid"

	"github.com/holdfast/holdfast/internal/lanetest"
	"github.com/holdfast/holdfast/internal/pgdev"
	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/migrations"
	"github.com/holdfast/holdfast/queues"
	"github.com/holdfast/holdfast/requests"
)

// passes has requests admitted and decided, and returns the mark of their slot. It fails the test unless they are
// decided.
func passes(b *lanetest.Bench, lane *queues.Lane) (mark int64) {
	b.TB.Helper()
	for range 3 { // drains of one slot side by side leave the mark to each other
		quick := b.Submit("quick", "shoe", 1)
		b.Tick(lane)
		b.Want(quick, requests.Done, "")
		mark = b.Mark(quick)
	}
	return mark
}

// Admissions are prepared, and the server is stopped and started: they are under way still, and the marks of both lanes
// wait for them. One is committed, the other one rolled back; then the marks move on.
func TestPreparedAdmissionOutlivesTheServer(t *testing.T) {
	t.Parallel()
	options := pgdev.Options{Dir: pgtest.KeptDir(t)}
	server := pgtest.StartServer(t, options)
	db := pgtest.Open(t, server.URL("postgres"))
	if err := migrations.Up(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	tenants := map[string]uuid.UUID{}
	prepared := map[string]requests.Request{}
	for name, policy := range kinds {
		b := lanetest.On(t, db, name, policy.newLane)
		b.Stock("shoe", 100)
		b.Tick(b.Lane(queues.LaneConfig{}))
		tenants[name], prepared[name] = b.Tenant, b.Prepare(name)
	}
	if err := server.Stop(); err != nil {
		t.Fatal(err)
	}
	db = pgtest.Open(t, pgtest.StartServer(t, options).URL("postgres"))
	lowest := min(prepared[requests.Hot].Sequence, prepared[requests.Normal].Sequence)
	lanes, benches := map[string]*queues.Lane{}, map[string]*lanetest.Bench{}
	for name, policy := range kinds {
		b := lanetest.On(t, db, name, policy.newLane)
		b.Tenant = tenants[name]
		benches[name], lanes[name] = b, b.Lane(queues.LaneConfig{})
		if mark := passes(b, lanes[name]); mark >= lowest {
			t.Errorf("%s: the mark is %d, past the prepared request %d", name, mark, lowest)
		}
	}
	benches[requests.Hot].Exec(`COMMIT PREPARED 'hot'`)
	benches[requests.Normal].Exec(`ROLLBACK PREPARED 'normal'`)
	benches[requests.Hot].Tick(lanes[requests.Hot])
	benches[requests.Hot].Want(prepared[requests.Hot], requests.Done, "")
	for name, b := range benches {
		if mark, last := passes(b, lanes[name]), b.Int(`SELECT max(sequence) FROM reservation_requests WHERE lane = $1`, name); mark < last-1 {
			t.Errorf("%s: the mark is %d, want it at %d, the last request", name, mark, last)
		}
		b.Sound()
	}
}
