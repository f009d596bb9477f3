package queues_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/holdfast/holdfast/internal/lanes"
	"github.com/holdfast/holdfast/internal/queues"
	"github.com/holdfast/holdfast/internal/testkit"
)

// Every slot is drained within a few ticks, even if one of them has much more
// to do.
func TestTickDrainsEverySlot(t *testing.T) {
	t.Parallel()
	b := testkit.New(t, lanes.Hot)
	busy, quiet := "", "" // in different slots, the one of busy first
	for i := 0; quiet == ""; i++ {
		variant := fmt.Sprint("v", i)
		b.Stock(variant, 1000)
		switch slot := b.Int(`SELECT slot FROM hot_variants WHERE variant_id = $1`, variant); {
		case slot == 0:
			busy = variant
		case busy != "":
			quiet = variant
		}
	}
	b.Tick(b.Lane(queues.LaneConfig{}))
	b.Exec(`ALTER TABLE reservations ADD CONSTRAINT slow CHECK (resource_key <> '` + busy + `' OR pg_sleep(0.02)::text = '')`)
	for range 300 { // six seconds of work
		b.Submit("a", busy, 1)
	}
	waiting := b.Submit("b", quiet, 1)
	lane := b.Lane(queues.LaneConfig{DrainConfig: queues.DrainConfig{Batch: 5}, Concurrency: 1, TickEvery: 200 * time.Millisecond})
	b.Run(lane)
	for !b.Get(waiting).Status.Finished() {
		if b.Int(`SELECT count(*) FROM reservation_requests WHERE variant_id = $1 AND status = 'queued'`, busy) < 100 {
			t.Fatal("a slot waited until the work of another one was nearly done")
		}
	}
}
