package queues_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/admission"
	"github.com/holdfast/holdfast/internal/lanes"
	"github.com/holdfast/holdfast/internal/queues"
	"github.com/holdfast/holdfast/internal/testkit"
	"github.com/holdfast/holdfast/requests"
)

// The rows were copied without their sequence, which draws numbers below the
// mark. Requests that are admitted then are decided, and so are those that were
// queued before. The reset is logged and counted once for the slot.
func TestSequenceBehindTheMark(t *testing.T) {
	t.Parallel()
	counted := func(name lanes.Lane) int64 {
		return testkit.Counted(t, "holdfast.lane.sequence_behind", map[string]string{"lane": string(name)})
	}
	before := map[lanes.Lane]int64{lanes.Hot: counted(lanes.Hot), lanes.Normal: counted(lanes.Normal)}
	t.Run("decides and logs", func(t *testing.T) {
		onEachLane(t, sequenceBehind)
	})
	for _, name := range lanes.All() {
		if n := counted(name) - before[name]; n != 1 {
			t.Errorf("%s: counted %d, want one", name, n)
		}
	}
	// not in parallel with the others, because their marks are counted
	t.Run("decides in order what is admitted below the mark", func(t *testing.T) {
		onEachLane(t, decidesBelowTheMark)
	})
}

func sequenceBehind(t *testing.T, name lanes.Lane) {
	t.Helper()
	b := testkit.New(t, name)
	b.Stock("shoe", 1000)
	b.Tick(b.Lane(queues.LaneConfig{}))
	before := b.Submit("before", "shoe", 1)
	b.Exec(`UPDATE lane_slots SET low_water = 100000 WHERE lane = $1 AND slot = $2`, name, before.Slot)
	b.Int(`SELECT setval('reservation_requests_sequence_seq', 1)`)
	late := b.Submit("late", "shoe", 1)

	var said bytes.Buffer
	b.Log = slog.New(slog.NewTextHandler(&said, nil))
	lane := b.Lane(queues.LaneConfig{Concurrency: 1})
	for range 3 {
		b.Tick(lane)
	}
	b.Want(before, requests.Done, "")
	b.Want(late, requests.Done, "")
	if n := strings.Count(said.String(), "level=ERROR"); n != 1 || !strings.Contains(said.String(), "mark=100000") {
		t.Errorf("%d errors logged, want one with the mark:\n%s", n, said.String())
	}
	b.Until("the mark moves on with the sequence", func() bool {
		b.Submit("after", "shoe", 1)
		b.Tick(lane)
		return b.Mark(late) >= late.Sequence
	})
	if n := b.Mark(late); n >= 100000 {
		t.Errorf("the mark is %d, past what was drawn", n)
	}
	b.CheckInvariants()
}

// A transaction draws its number while a drain resets the mark, and commits
// long after. The drain must use the horizon that it read before it claims, not
// a later one.
func TestLateAdmissionWhileMarksAreReset(t *testing.T) {
	t.Parallel()
	b := testkit.New(t, lanes.Hot)
	b.Stock("shoe", 1000)
	lane := b.Lane(queues.LaneConfig{Concurrency: 1})
	slot := b.Submit("first", "shoe", 1).Slot
	b.Tick(lane)
	b.Exec(`UPDATE lane_slots SET low_water = 100000 WHERE lane = 'hot' AND slot = $1`, slot)
	ctx := t.Context()
	var late requests.Request
	var commit func()
	err := pgx.BeginFunc(ctx, b.DB, func(tx pgx.Tx) error {
		lease, err := lanes.LeaseTx(ctx, &stepped{Tx: tx, before: nth(t, 1, "SELECT low_water", func() {
			late, commit = b.Open("late")
		})}, lanes.Stream{Lane: lanes.Hot, Slot: slot}, nil)
		if lease.Behind != 100000 || lease.LowWater != 0 || lease.VisibleUpTo() >= late.Sequence {
			t.Errorf("behind %d, mark %d, horizon %d, want 100000, 0 and less than %d", lease.Behind, lease.LowWater, lease.VisibleUpTo(), late.Sequence)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		b.Tick(lane)
	}
	commit()
	b.TickUntil(lane, late)
	b.Want(late, requests.Done, "")
}

// The request of a caller that waits draws a number below the mark. An earlier
// queued request is below the mark too, so a claim does not see it. The
// caller's request is not decided as it is admitted. Once a drain has reset the
// mark, both are decided in their order.
func decidesBelowTheMark(t *testing.T, name lanes.Lane) {
	t.Helper()
	b := testkit.New(t, name)
	b.Stock("shoe", 1000)
	lane := b.Lane(queues.LaneConfig{Concurrency: 1})
	b.Tick(lane)
	in := b.Intake(admission.IntakeConfig{Decider: b.NewDecider(queues.DrainConfig{})})
	submit := func() requests.Request {
		t.Helper()
		return b.SubmitDirect(in, unit("a", "shoe")).Request
	}
	b.Until("a request is decided as it is admitted", func() bool {
		r := submit() // It is queued while the intake does not know that the variant is hot.
		b.Tick(lane)
		return r.Status == requests.Done
	})
	b.Exec(`UPDATE inventory_stocks SET stock = reserved + 1`)
	first := b.Submit("a", "shoe", 1)
	b.Exec(`UPDATE lane_slots SET low_water = 100000 WHERE lane = $1 AND slot = $2`, name, first.Slot)
	second := submit()
	b.Want(first, requests.Queued, "")
	b.Want(second, requests.Queued, "")
	b.Tick(lane)
	b.Want(first, requests.Done, "")
	b.Want(second, requests.Failed, requests.OutOfStock)
	b.Exec(`UPDATE inventory_stocks SET stock = stock + 1`)
	if r := submit(); r.Status != requests.Done {
		t.Errorf("once the mark is reset a request is %s, want it decided as it is admitted", r.Status)
	}
	b.CheckInvariants()
}

// A transaction draws its number beside a multiple of 2^48, where the nodes of a
// distributed Postgres begin their sequences, and commits after later requests
// were decided. The mark does not pass it.
func TestLateAdmissionBeyond48Bits(t *testing.T) {
	t.Parallel()
	for _, drawn := range []int64{1<<48 - 2, 3<<48 - 1, 3 << 48} {
		b := testkit.New(t, lanes.Hot)
		b.Stock("shoe", 1000)
		b.Int(`SELECT setval('reservation_requests_sequence_seq', $1)`, drawn)
		lane := b.Lane(queues.LaneConfig{Concurrency: 1})
		first := b.Submit("first", "shoe", 1)
		b.TickUntil(lane, first)
		late, commit := b.Open("late")
		for range 5 {
			b.TickUntil(lane, b.Submit("later", "shoe", 1))
		}
		if mark := b.Mark(late); mark < first.Sequence || mark >= late.Sequence {
			t.Errorf("the mark is %d, want it at %d or above and below %d", mark, first.Sequence, late.Sequence)
		}
		commit()
		b.TickUntil(lane, late)
		b.Want(late, requests.Done, "")
		b.CheckInvariants()
	}
}
