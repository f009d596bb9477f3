package queues_test

import (
	"testing"

	"github.com/google/uuid"

	"github.com/holdfast/holdfast/internal/lanes"
	"github.com/holdfast/holdfast/internal/pgdev"
	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/internal/queues"
	"github.com/holdfast/holdfast/internal/testkit"
	"github.com/holdfast/holdfast/migrations"
	"github.com/holdfast/holdfast/requests"
)

// passes admits requests, drains, and returns the mark of their slot. It fails
// the test unless they are decided.
func passes(b *testkit.Fixture, lane *queues.Lane) (mark int64) {
	b.TB.Helper()
	for range 3 { // of two concurrent drains of a slot, neither may move the mark
		quick := b.Submit("quick", "shoe", 1)
		b.Tick(lane)
		b.Want(quick, requests.Done, "")
		mark = b.Mark(quick)
	}
	return mark
}

// Two admissions are prepared, and the server is stopped and started. They are
// still open, and the marks of both lanes wait for them. One is committed, the
// other rolled back, and then the marks move.
func TestPreparedAdmissionOutlivesTheServer(t *testing.T) {
	t.Parallel()
	options := pgdev.Options{Dir: pgtest.KeptDir(t)}
	server := pgtest.StartServer(t, options)
	db := pgtest.Open(t, server.URL("postgres"))
	if err := migrations.Up(t.Context(), db, nil); err != nil {
		t.Fatal(err)
	}
	tenants := map[lanes.Lane]uuid.UUID{}
	prepared := map[lanes.Lane]requests.Request{}
	for _, name := range lanes.All() {
		b := testkit.On(t, db, name)
		b.Stock("shoe", 100)
		b.Tick(b.Lane(queues.LaneConfig{}))
		tenants[name], prepared[name] = b.Tenant, prepare(b, string(name))
	}
	if err := server.Stop(); err != nil {
		t.Fatal(err)
	}
	db = pgtest.Open(t, pgtest.StartServer(t, options).URL("postgres"))
	lowest := min(prepared[lanes.Hot].Sequence, prepared[lanes.Normal].Sequence)
	served, fixtures := map[lanes.Lane]*queues.Lane{}, map[lanes.Lane]*testkit.Fixture{}
	for _, name := range lanes.All() {
		b := testkit.On(t, db, name)
		b.Tenant = tenants[name]
		fixtures[name], served[name] = b, b.Lane(queues.LaneConfig{})
		if mark := passes(b, served[name]); mark >= lowest {
			t.Errorf("%s: the mark is %d, past the prepared request %d", name, mark, lowest)
		}
	}
	fixtures[lanes.Hot].Exec(`COMMIT PREPARED 'hot'`)
	fixtures[lanes.Normal].Exec(`ROLLBACK PREPARED 'normal'`)
	fixtures[lanes.Hot].Tick(served[lanes.Hot])
	fixtures[lanes.Hot].Want(prepared[lanes.Hot], requests.Done, "")
	for name, b := range fixtures {
		if mark, last := passes(b, served[name]), b.Int(`SELECT max(sequence) FROM reservation_requests WHERE lane = $1`, name); mark < last-1 {
			t.Errorf("%s: the mark is %d, want it at %d, the last request", name, mark, last)
		}
		b.CheckInvariants()
	}
}
