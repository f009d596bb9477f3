package queues_test

import (
	"testing"
	"time"

	"github.com/holdfast/holdfast/internal/admission"
	"github.com/holdfast/holdfast/internal/lanes"
	"github.com/holdfast/holdfast/internal/queues"
	"github.com/holdfast/holdfast/requests"
)

// A direct decision waits for a stock that another transaction, such as another
// process's direct decision, has locked for some milliseconds. If the stock
// stays locked for longer than the wait, the request stays queued, and the next
// request does not wait.
func TestDirectDecisionWaitsForTheStock(t *testing.T) {
	t.Parallel()
	onEachLane(t, func(t *testing.T, lane lanes.Lane) {
		b, in := newDeciding(t, lane, untilFree)
		b.Stock("shoe", 1000)
		b.Settle(in)
		lock := b.LockStock("shoe")
		received := make(chan requests.View, 1)
		go func() { received <- b.SubmitDirect(in, unit("a", "shoe")) }()
		b.Blocked()
		lock.Release()
		wantView(t, "of a stock that became free", <-received, requests.Done, "")

		b.Decider = b.NewDecider(queues.DrainConfig{StockWait: time.Millisecond})
		brief := b.Intake(admission.IntakeConfig{})
		b.Settle(brief)
		lock = b.LockStock("shoe")
		wantView(t, "of a stock that stays locked", b.SubmitDirect(brief, unit("b", "shoe")), requests.Queued, "")
		next := b.SubmitDirect(in, unit("c", "shoe")) // would wait for the lock below
		wantView(t, "the next", next, requests.Queued, "")
		lock.Release()
		drain(b, next.Request)
		b.CheckInvariants()
	})
}
