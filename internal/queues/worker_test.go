package queues_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"

	"github.com/holdfast/holdfast/internal/admission"
	"github.com/holdfast/holdfast/internal/lanes"
	"github.com/holdfast/holdfast/internal/queues"
	"github.com/holdfast/holdfast/internal/requestrows"
	"github.com/holdfast/holdfast/internal/testkit"
	"github.com/holdfast/holdfast/requests"
)

// serveWithoutTicks runs a lane whose ticks are an hour apart, concurrently
// with serve, until the test ends.
func serveWithoutTicks(b *testkit.Fixture, serve func(ctx context.Context, lane *queues.Lane) error) {
	b.TB.Helper()
	lane := b.Lane(queues.LaneConfig{TickEvery: time.Hour})
	b.Run(lane)
	ctx, stop := context.WithCancel(context.WithoutCancel(b.TB.Context()))
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := serve(ctx, lane); err != nil {
			b.TB.Error(err)
		}
	})
	b.TB.Cleanup(func() { stop(); serving.Wait() })
}

// decidesSoon admits a request by the intake, or in a transaction if in is nil.
// It fails the test unless the request is decided.
func decidesSoon(b *testkit.Fixture, in *admission.Intake, cart string) {
	b.TB.Helper()
	var r requests.Request
	var err error
	if in == nil {
		r = b.Submit(cart, "shoe", 1)
	} else if r, err = in.Submit(b.TB.Context(), requestrows.Submission{TenantID: b.Tenant, CartID: cart, VariantID: "shoe", Quantity: 1}); err != nil {
		b.TB.Fatal(err)
	}
	b.Until("the request of "+cart+" is decided", func() bool { return b.Get(r).Status == requests.Done })
}

// When River works a wake, its slot is drained.
func TestWakeByRiver(t *testing.T) {
	t.Parallel()
	b := testkit.New(t, lanes.Hot)
	b.Stock("shoe", 10)
	serveWithoutTicks(b, func(ctx context.Context, lane *queues.Lane) error {
		client, err := queues.NewClient(b.DB, discard, []*queues.Lane{lane}, queues.WorkerConfig{})
		if err != nil {
			return err
		}
		if err := client.Start(ctx); err != nil {
			return err
		}
		<-client.Stopped()
		return nil
	})
	for _, cart := range []string{"a", "b", "c"} {
		decidesSoon(b, nil, cart)
	}
	b.CheckInvariants()
}

const terminateSQL = `
SELECT count(pg_terminate_backend(pid))
FROM pg_stat_activity
WHERE datname = current_database() AND query = 'LISTEN holdfast_wake'`

// A notification causes a drain of its slot, even after the listening
// connection was lost.
func TestWakeByNotification(t *testing.T) {
	t.Parallel()
	b := testkit.New(t, lanes.Hot)
	b.Stock("shoe", 10)
	serveWithoutTicks(b, func(ctx context.Context, lane *queues.Lane) error {
		return queues.Listen(ctx, b.DB, discard, lane)
	})
	in := b.Intake(admission.IntakeConfig{})
	decidesSoon(b, in, "a")
	if n := b.Int(terminateSQL); n != 1 {
		t.Fatalf("%d sessions listened, want one", n)
	}
	decidesSoon(b, in, "b")
	decidesSoon(b, in, "c")
	b.CheckInvariants()
}

// An inserter to which the lane is attached wakes it without a notification.
func TestWakeInProcess(t *testing.T) {
	t.Parallel()
	b := testkit.New(t, lanes.Hot)
	b.Stock("shoe", 10)
	lane := b.Lane(queues.LaneConfig{TickEvery: time.Hour})
	b.Run(lane)
	b.Inserter.Attach(lane)
	in := b.Intake(admission.IntakeConfig{})
	for _, cart := range []string{"a", "b", "c"} {
		decidesSoon(b, in, cart)
	}
	b.CheckInvariants()
}

// While nothing is queued, ticks write nothing, however much was decided in
// other slots.
func TestIdleTicksWriteNothing(t *testing.T) {
	t.Parallel()
	b := testkit.New(t, lanes.Hot)
	for _, variant := range []string{"shoe", "sock", "shirt"} {
		b.Stock(variant, 100)
	}
	lane := b.Lane(queues.LaneConfig{})
	for i := range 10 {
		b.Submit(fmt.Sprint("cart-", i), "shoe", 1)
	}
	b.Tick(lane)
	b.Tick(lane)
	const versionsSQL = `SELECT sum(xmin::text::bigint + xmax::text::bigint) FROM lane_slots`
	before := b.Int(versionsSQL)
	for range 5 {
		if report := b.Tick(lane); report.Claimed > 0 {
			t.Errorf("an idle tick claimed %d", report.Claimed)
		}
	}
	if after := b.Int(versionsSQL); after != before {
		t.Error("idle ticks wrote or locked rows of lane_slots")
	}
}

// own is a job that is not a wake.
type own struct{}

func (own) Kind() string { return "own" }

type ownWorker struct {
	river.WorkerDefaults[own]
	worked chan struct{}
}

func (w *ownWorker) Work(context.Context, *river.Job[own]) error {
	close(w.worked)
	return nil
}

// The River client of a program works the wakes together with the program's
// other jobs. No tick decides anything.
func TestConfigure(t *testing.T) {
	t.Parallel()
	b := testkit.New(t, lanes.Normal)
	lane := b.Lane(queues.LaneConfig{TickEvery: time.Hour})
	b.Run(lane)
	mine := &ownWorker{worked: make(chan struct{})}
	workers := river.NewWorkers()
	river.AddWorker(workers, mine)
	config := &river.Config{
		Workers: workers, Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 1}},
		Logger: discard,
	}
	if err := queues.Configure(config, lane); err != nil {
		t.Fatal(err)
	}
	client, err := river.NewClient(riverpgxv5.New(b.DB), config)
	if err != nil {
		t.Fatal(err)
	}
	if err := client.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := client.Stop(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	}()
	b.Stock("shirt", 1)
	wanted := b.Submit("cart", "shirt", 1)
	if _, err := client.Insert(t.Context(), own{}, nil); err != nil {
		t.Fatal(err)
	}
	select {
	case <-mine.worked:
	case <-time.After(5 * time.Minute):
		t.Error("the program's other job was not worked")
	}
	b.Until("the wake is worked", func() bool { return b.Get(wanted).Status == requests.Done })
}

func TestConfigureRefuses(t *testing.T) {
	t.Parallel()
	b := testkit.New(t, lanes.Normal)
	lane := b.Lane(queues.LaneConfig{})
	for want, config := range map[string]*river.Config{
		`its schema is "public"`:            {Schema: "public"},
		`the queue "normal" exists already`: {Queues: map[string]river.QueueConfig{string(lanes.Normal): {MaxWorkers: 1}}},
	} {
		if err := queues.Configure(config, lane); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q in it", err, want)
		}
	}
	config := &river.Config{}
	if err := queues.Configure(config); err != nil {
		t.Fatal(err)
	}
	if err := queues.Configure(config, lane); err == nil || !strings.Contains(err.Error(), "already registered") {
		t.Errorf("a second time: %v", err)
	}
}
