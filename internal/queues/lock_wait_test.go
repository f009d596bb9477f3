package queues_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/holdfast/holdfast/internal/lanes"
	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/internal/queues"
	"github.com/holdfast/holdfast/internal/testkit"
	"github.com/holdfast/holdfast/requests"
)

// longTransactions has a long transaction timeout and no ticks, so that only the
// lock timeout of a drain ends a wait for a lock.
var longTransactions = queues.LaneConfig{
	TickEvery: time.Hour, Concurrency: 1, DrainConfig: queues.DrainConfig{TransactionTimeout: time.Hour},
}

// A drain of the hot lane ends although its stock stays locked. That is not an
// error and not an attempt.
func TestHotDrainWaitsBriefly(t *testing.T) {
	t.Parallel()
	b := testkit.New(t, lanes.Hot)
	b.Stock("shoe", 10)
	b.Tick(b.Lane(queues.LaneConfig{}))
	b.LockStock("shoe")
	locked := b.Submit("a", "shoe", 1)
	config := longTransactions
	config.ServeFor = time.Nanosecond
	report, err := b.Lane(config).Serve(t.Context(), locked.Slot)
	if err != nil || !report.More || report.Claimed+report.Retried > 0 {
		t.Errorf("%+v, %v, want a report of more work", report, err)
	}
	if v := b.Get(locked); v.Status != requests.Queued || v.Attempts != 0 {
		t.Errorf("%s after %d attempts, want queued after none", v.Status, v.Attempts)
	}
}

const waitingSQL = `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`

// While another session has locked the stocks of many hot variants, the drains
// that wait for them are few and need no permit: the other variants are decided,
// of any tenant. Soon no drain waits. The requests are decided once the locks
// are released. No tick decides anything.
func TestManyLockedHotStocks(t *testing.T) {
	t.Parallel()
	for name, concurrency := range map[string]int{"one permit": 1, "four permits": 4} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const variants, rounds = 12, 10
			b := testkit.New(t, lanes.Hot)
			other := testkit.On(t, b.DB, lanes.Hot)
			other.Stock("sock", 100)
			b.Stock("sock", 100)
			for i := range variants {
				b.Stock(fmt.Sprint("locked ", i), 100)
			}
			b.Tick(b.Lane(queues.LaneConfig{}))
			config := longTransactions
			config.Concurrency = concurrency
			lane := b.Lane(config)
			b.Run(lane)
			console := b.Lock(`SELECT FROM inventory_stocks WHERE variant_id LIKE 'locked %' FOR UPDATE`)
			var stuck []requests.Request
			for round := range rounds {
				for i := range variants {
					r := b.Submit(fmt.Sprint("cart-", round), fmt.Sprint("locked ", i), 1)
					lane.Wake(r.Slot)
					stuck = append(stuck, r)
				}
				for _, free := range []*testkit.Fixture{b, other} {
					r := free.Submit(fmt.Sprint("cart-", round), "sock", 1)
					lane.Wake(r.Slot)
					free.Until("another variant is decided", func() bool {
						if n := b.Int(waitingSQL); n > int64(queues.LockWaits(concurrency)) {
							t.Errorf("%d sessions wait for a lock, want at most %d", n, queues.LockWaits(concurrency))
						}
						return free.Get(r).Status == requests.Done
					})
				}
			}
			for range 20 {
				b.Until("no drain waits for a lock", func() bool { return b.Int(waitingSQL) == 0 })
			}
			for _, r := range stuck {
				b.Want(r, requests.Queued, "")
			}
			console.Release()
			for _, r := range stuck {
				b.Until("the request is decided", func() bool { return b.Get(r).Status == requests.Done })
				if n := b.Get(r).Attempts; n != 0 {
					t.Errorf("decided after %d attempts, want none counted", n)
				}
			}
			b.CheckInvariants()
		})
	}
}

// A hot stock is never free, because another transaction always waits for the
// lock of the one that has it. The drain gets its turn among them.
func TestHotStockThatIsNeverFree(t *testing.T) {
	t.Parallel()
	b := testkit.New(t, lanes.Hot)
	b.Stock("shoe", 10)
	b.Tick(b.Lane(queues.LaneConfig{}))
	lane := b.Lane(longTransactions)
	b.Run(lane)
	const lockSQL = `SELECT FROM inventory_stocks WHERE variant_id = 'shoe' FOR UPDATE`
	last := b.Lock(lockSQL).Tx
	r := b.Submit("a", "shoe", 1)
	lane.Wake(r.Slot)
	pgtest.Until(t, "the request is decided", func() bool {
		next := b.Begin()
		var pid int
		if err := next.QueryRow(t.Context(), `SELECT pg_backend_pid()`).Scan(&pid); err != nil {
			t.Fatal(err)
		}
		locked := make(chan error, 1)
		go func() {
			_, err := next.Exec(t.Context(), lockSQL)
			locked <- err
		}()
		b.Until("the next transaction waits", func() bool {
			return b.Int(`SELECT count(*) FROM pg_stat_activity WHERE pid = $1 AND wait_event_type = 'Lock'`, pid) == 1
		})
		if err := last.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := <-locked; err != nil {
			t.Fatal(err)
		}
		last = next
		return b.Get(r).Status == requests.Done
	})
	if err := last.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.CheckInvariants()
}
