package queues_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/internal/admission"
	"github.com/holdfast/holdfast/internal/lanes"
	"github.com/holdfast/holdfast/internal/queues"
	"github.com/holdfast/holdfast/internal/testkit"
)

// process is a worker of one lane with its own pool, like a separate program.
type process struct {
	lane    *queues.Lane
	listens atomic.Bool // whether its connections can listen
	end     func()
}

// wakes selects the ways in which processes are woken.
type wakes struct {
	notified, river bool
	tick            time.Duration
}

// newPool opens another pool to the database.
func newPool(t *testing.T, db *pgxpool.Pool, beforeConnect func(context.Context, *pgx.ConnConfig) error) *pgxpool.Pool {
	t.Helper()
	config := db.Config()
	config.BeforeConnect = beforeConnect
	config.MaxConns = 6
	pool, err := pgxpool.NewWithConfig(context.WithoutCancel(t.Context()), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// startProcess starts a process, which ends with the test or when end is
// called.
func startProcess(t *testing.T, b *testkit.Fixture, by wakes) *process {
	t.Helper()
	db := newPool(t, b.DB, nil)
	own := *b
	own.DB = db
	lane := own.Lane(queues.LaneConfig{TickEvery: by.tick})
	p := &process{lane: lane}
	p.listens.Store(true)
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	p.end = sync.OnceFunc(func() { stop(); running.Wait() })
	t.Cleanup(p.end)
	running.Go(func() { _ = lane.Run(ctx) })
	b.Until("the lane runs", func() bool { return !lane.Ticked().IsZero() })
	if by.notified {
		listener := newPool(t, b.DB, func(context.Context, *pgx.ConnConfig) error {
			if !p.listens.Load() {
				return errors.New("the network is cut")
			}
			return nil
		})
		running.Go(func() { _ = queues.Listen(ctx, listener, discard, lane) })
	}
	if by.river {
		client, err := queues.NewClient(db, discard, []*queues.Lane{lane}, queues.WorkerConfig{})
		if err != nil {
			t.Fatal(err)
		}
		if err := client.Start(ctx); err != nil {
			t.Fatal(err)
		}
		running.Go(func() { <-client.Stopped() })
	}
	return p
}

const listeningSQL = `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query = 'LISTEN holdfast_wake'`

// Two processes serve a lane, and a third one admits. Each of three ways to
// learn of work is enough: a notification, River's wake if the listening
// connections are cut, and the tick if all wakes are lost. The first two take
// far less time than a tick. All this is true also after the process that last
// drained the slot has ended.
func TestWakesOverProcesses(t *testing.T) {
	t.Parallel()
	for what, by := range map[string]wakes{
		"notification": {notified: true, tick: time.Hour},
		"River":        {notified: true, river: true, tick: time.Hour},
		"tick":         {tick: 500 * time.Millisecond},
	} {
		for _, name := range lanes.All() {
			t.Run(string(name)+" by "+what, func(t *testing.T) {
				t.Parallel()
				b := testkit.New(t, name)
				b.Stock("shoe", 100)
				b.Tick(b.Lane(queues.LaneConfig{}))
				workers := []*process{startProcess(t, b, by), startProcess(t, b, by)}
				if by.notified {
					b.Until("both listen", func() bool { return b.Int(listeningSQL) == 2 })
				}
				if by.river {
					for _, w := range workers {
						w.listens.Store(false)
					}
					b.Exec(terminateSQL)
				}
				admitting := *b
				admitting.DB = newPool(t, b.DB, nil)
				inserter, err := queues.NewWakeInserter(admitting.DB)
				if err != nil {
					t.Fatal(err)
				}
				admitting.Inserter = inserter
				in := admitting.Intake(admission.IntakeConfig{})
				decided := func(cart string) {
					t.Helper()
					decidesSoon(b, in, cart) // there is an hour between two ticks
				}
				for i := range 3 {
					decided(fmt.Sprint("cart-", i))
				}
				for i, w := range workers {
					w.end()
					if i == 0 {
						decided("after the end of a process")
					}
				}
				b.CheckInvariants()
			})
		}
	}
}
