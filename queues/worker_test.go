package queues_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"

	"github.com/holdfast/holdfast/internal/lanetest"
	"github.com/holdfast/holdfast/queues"
	"github.com/holdfast/holdfast/queues/hot"
	"github.com/holdfast/holdfast/queues/normal"
	"github.com/holdfast/holdfast/requests"
)

// A wake for a slot that this process does not serve waits for one that does, but not for ever: wakes without a taker would
// be all that the process ever works on.
func TestStrayWakes(t *testing.T) {
	t.Parallel()
	b := lanetest.New(t, requests.Hot, hot.NewLane)
	lane := b.Lane(queues.LaneConfig{Slots: []int16{0}})
	client, err := queues.NewClient(b.DB, slog.New(slog.DiscardHandler), b.Bell, []*queues.Lane{lane}, queues.WorkerConfig{})
	if err != nil {
		t.Fatal(err)
	}
	ring := func(slot int16) {
		err := pgx.BeginFunc(t.Context(), b.DB, func(tx pgx.Tx) error {
			return b.Bell.RingTx(t.Context(), tx, []requests.Wake{{Lane: requests.Hot, Slot: slot}})
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	ring(1)
	b.Exec(`UPDATE river.river_job SET created_at = created_at - interval '1 minute'`)
	ring(2)
	if err := client.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := client.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	const endedSQL = `SELECT count(*) FROM river.river_job WHERE state = 'completed' AND args ->> 'slot' = $1`
	for deadline := time.Now().Add(20 * time.Second); b.Int(endedSQL, "1") == 0; {
		if time.Now().After(deadline) {
			t.Fatal("a wake without a taker is kept for ever")
		}
	}
	if b.Int(endedSQL, "2") != 0 && b.Int(`SELECT count(*) FROM river.river_job WHERE created_at > clock_timestamp() - interval '4 seconds'`) > 0 {
		t.Error("a wake whose taker may be along in a moment was dropped")
	}
}

// own is a job of the program's own.
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

// A program's own client works the wakes beside the program's own jobs. The lane is not run, so no tick decides anything.
func TestConfigure(t *testing.T) {
	t.Parallel()
	b := lanetest.New(t, requests.Normal, normal.NewLane)
	lane := b.Lane(queues.LaneConfig{})
	mine := &ownWorker{worked: make(chan struct{})}
	workers := river.NewWorkers()
	river.AddWorker(workers, mine)
	config := &river.Config{
		Workers: workers, Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 1}},
		Logger: slog.New(slog.DiscardHandler),
	}
	if err := queues.Configure(config, b.Bell, lane); err != nil {
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
	deadline := time.After(20 * time.Second)
	select {
	case <-mine.worked:
	case <-deadline:
		t.Error("the program's own job was not worked")
	}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for b.Get(wanted).Status != requests.Done {
		select {
		case <-deadline:
			t.Fatal("the wake was not worked")
		case <-tick.C:
		}
	}
}

func TestConfigureRefuses(t *testing.T) {
	t.Parallel()
	b := lanetest.New(t, requests.Normal, normal.NewLane)
	lane := b.Lane(queues.LaneConfig{})
	for want, config := range map[string]*river.Config{
		`its schema is "public"`:            {Schema: "public"},
		`there is a queue "normal" already`: {Queues: map[string]river.QueueConfig{requests.Normal: {MaxWorkers: 1}}},
	} {
		if err := queues.Configure(config, b.Bell, lane); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q in it", err, want)
		}
	}
	config := &river.Config{}
	if err := queues.Configure(config, b.Bell); err != nil {
		t.Fatal(err)
	}
	if err := queues.Configure(config, b.Bell, lane); err == nil || !strings.Contains(err.Error(), "already registered") {
		t.Errorf("a second time: %v", err)
	}
}
