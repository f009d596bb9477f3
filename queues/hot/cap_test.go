package hot_test

import (
	"testing"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/lanes"
	"github.com/holdfast/holdfast/internal/queues"
	"github.com/holdfast/holdfast/internal/testkit"
	"github.com/holdfast/holdfast/requests"
)

// Under a rate cap, a drain that waits for a locked stock does not delay
// another drain of the lane.
func TestWaitingDrainDoesNotLockTheCap(t *testing.T) {
	t.Parallel()
	b := testkit.New(t, lanes.Hot)
	b.Stock("shoe", 10)
	b.Stock("sock", 10)
	limit := int32(1000)
	if err := lanes.Control(t.Context(), b.DB, lanes.Hot, lanes.Patch{RateCap: &limit}, audit.Origin{}); err != nil {
		t.Fatal(err)
	}
	lane := b.Lane(queues.LaneConfig{})
	shoe := b.Submit("a", "shoe", 1)
	checkout := b.LockStock("shoe")
	stop := b.Work(lane) // which waits for 100 ms in each tick
	b.Blocked()
	if _, err := checkout.Exec(t.Context(), `SELECT FROM lane_slots WHERE lane = 'hot' AND slot = -1 FOR UPDATE NOWAIT`); err != nil {
		t.Errorf("the lane's controls are locked: %v", err)
	}
	checkout.Release()
	stop()
	sock := b.Submit("b", "sock", 1)
	b.Tick(lane)
	b.Want(shoe, requests.Done, "")
	b.Want(sock, requests.Done, "")
	b.CheckInvariants()
}
