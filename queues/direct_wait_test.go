package queues_test

import (
	"testing"
	"time"

	"github.com/holdfast/holdfast/lanes"
	"github.com/holdfast/holdfast/requests"
)

// A direct decision waits for a stock that another transaction, such as another
// process's direct decision, has locked for some milliseconds. If the stock
// stays locked for longer than the wait, the request stays queued, and the next
// request does not wait.
func TestDirectDecisionWaitsForTheStock(t *testing.T) {
	t.Parallel()
	for _, lane := range lanes.All() {
		t.Run(string(lane), func(t *testing.T) {
			t.Parallel()
			b, in := newDeciding(t, lane)
			b.Stock("shoe", 1000)
			b.Settle(in)
			const (
				tries = 50                     // on a busy machine the wait may time out
				wait  = 100 * time.Millisecond // for a stock
			)
			for try := 1; ; try++ {
				lock := b.LockStock("shoe")
				received := make(chan requests.View, 1)
				go func() { received <- b.SubmitDirect(in, unit("a", "shoe")) }()
				b.Blocked()
				if err := lock.Rollback(t.Context()); err != nil {
					t.Fatal(err)
				}
				v := <-received
				if v.Status == requests.Done {
					break
				}
				if try == tries {
					t.Fatalf("the request is %s, with a stock that became free in each of %d tries", v.Status, tries)
				}
				drain(b, v.Request)
				b.Settle(in)
			}

			lock := b.LockStock("shoe")
			wantView(t, "of a stock that stays locked", b.SubmitDirect(in, unit("b", "shoe")), requests.Queued, "")
			var next requests.View
			waited := true
			for try := 1; try <= tries && waited; try++ {
				over := time.Now().Add(wait)
				next = b.SubmitDirect(in, unit("c", "shoe"))
				waited = time.Now().After(over)
				wantView(t, "the next", next, requests.Queued, "")
			}
			if waited {
				t.Errorf("each of %d requests behind a queued one waited for the stock", tries)
			}
			if err := lock.Rollback(t.Context()); err != nil {
				t.Fatal(err)
			}
			drain(b, next.Request)
			b.Sound()
		})
	}
}
