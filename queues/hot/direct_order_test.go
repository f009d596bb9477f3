package hot_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast/holdfast/internal/admission"
	"github.com/holdfast/holdfast/internal/lanes"
	"github.com/holdfast/holdfast/internal/queues"
	"github.com/holdfast/holdfast/internal/requestrows"
	"github.com/holdfast/holdfast/internal/testkit"
	"github.com/holdfast/holdfast/requests"
)

// crossing is two processes that admit, and lanes that drain. Callers that wait
// and callers that do not request a hot variant, "shoe", and one that moves
// between the lanes, "sock".
type crossing struct {
	b       *testkit.Fixture
	intakes [2]*admission.Intake
	decided func() int64 // the number of requests decided as they were admitted
	isHot   map[string]*atomic.Bool
}

func newCrossing(t *testing.T) *crossing {
	t.Helper()
	b := testkit.New(t, lanes.Normal)
	c := &crossing{b: b, isHot: map[string]*atomic.Bool{"shoe": {}, "sock": {}}}
	b.Stock("shoe", 0)
	b.Stock("sock", 0)
	c.pin(t, "shoe")
	var deciders [2]*testkit.Decider
	for i := range c.intakes {
		deciders[i] = b.NewDecider(queues.DrainConfig{})
		c.intakes[i] = b.Intake(admission.IntakeConfig{Decider: deciders[i], GroupMax: 6, QueueMax: 1000})
		b.Settle(c.intakes[i])
	}
	c.decided = func() int64 { return deciders[0].Decided() + deciders[1].Decided() }
	return c
}

func (c *crossing) pin(t *testing.T, variant string) {
	t.Helper()
	if err := lanes.Pin(t.Context(), c.b.DB, c.b.Inserter, c.b.Tenant, variant); err != nil {
		t.Error(err)
	}
	c.isHot[variant].Store(true)
}

// round runs callers while "sock" moves to the hot lane and back. It returns
// the history of their calls by variant.
func (c *crossing) round(t *testing.T, seed uint64) map[string]*history {
	t.Helper()
	c.b.Exec(`UPDATE inventory_stocks SET stock = reserved + 25`)
	logs := map[string]*history{"shoe": {}, "sock": {}}
	var callers sync.WaitGroup
	for n := range 4 {
		random := rand.New(rand.NewPCG(seed, uint64(n)))
		callers.Go(func() {
			for i := range 24 {
				variant := []string{"shoe", "sock"}[random.IntN(2)]
				sent := logs[variant].submit(t, c.intakes[random.IntN(2)], c.isHot[variant].Load(), requestrows.Submission{
					TenantID: c.b.Tenant, CartID: fmt.Sprint(seed, "-", n, "-", i), VariantID: variant, Quantity: 1, Waits: random.IntN(8) > 0,
				})
				if random.IntN(8) > 0 && sent != nil {
					c.await(t, sent.Request)
				}
			}
		})
	}
	c.pin(t, "sock")
	c.b.Until("the variant is hot", func() bool { return c.b.Int(`SELECT count(*) FROM hot_variants WHERE state <> 'hot'`) == 0 })
	c.isHot["sock"].Store(false)
	if err := lanes.Unpin(t.Context(), c.b.DB, c.b.Inserter, c.b.Tenant, "sock"); err != nil {
		t.Error(err)
	}
	callers.Wait()
	c.b.Until("all are decided, and the move is over", func() bool {
		return c.b.Int(`SELECT (SELECT count(*) FROM reservation_requests WHERE status = 'queued') + (SELECT count(*) FROM hot_variants WHERE state <> 'hot')`) == 0
	})
	return logs
}

// await waits until the request is decided.
func (c *crossing) await(t *testing.T, r requests.Request) {
	again := time.NewTicker(2 * time.Millisecond)
	defer again.Stop()
	for !r.Status.Finished() && !t.Failed() {
		<-again.C
		v, err := requestrows.Get(t.Context(), c.b.DB, r.TenantID, r.RequestID)
		if err != nil {
			t.Error(err)
		}
		r = v.Request
	}
}

// Callers that wait, and callers that do not, send requests to two processes,
// and lanes drain. One variant is hot, another becomes hot and normal again
// meanwhile. A request that was accepted before another one was sent is decided
// before it, directly or by a drain.
func TestOrderOfDirectDecisions(t *testing.T) {
	t.Parallel()
	c := newCrossing(t)
	defer c.b.Work(ofBothKinds(c.b, 3)...)()
	seeds := testkit.Seeds(4)
	decided, pairs := c.decided(), map[string]int{}
	for _, seed := range seeds {
		logs := c.round(t, seed)
		all := outcomes(t, c.b)
		for variant, log := range logs {
			pairs[variant] += log.mustNotOvertake(t, all)
		}
		if t.Failed() {
			t.Fatal("seed ", seed)
		}
	}
	decided = c.decided() - decided
	queued := c.b.Int(`SELECT count(*) FROM reservation_requests`) - decided
	t.Logf("%d decided as they were admitted, %d queued, %v pairs compared", decided, queued, pairs)
	if decided == 0 || queued == 0 || pairs["shoe"] == 0 || pairs["sock"] == 0 {
		t.Error("one path, or one variant, was not compared")
	}
	c.b.CheckInvariants()
}
