package hot_test

import (
	"context"
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
	shoe, sock := b.Submit("a", "shoe", 1), b.Submit("b", "sock", 1)
	checkout := b.LockStock("shoe")
	waiting := make(chan error, 1)
	go func() { _, err := lane.Serve(context.WithoutCancel(t.Context()), shoe.Slot); waiting <- err }()
	b.Blocked()
	if _, err := checkout.Exec(t.Context(), `SET LOCAL lock_timeout = '200ms'`); err != nil {
		t.Fatal(err)
	}
	if _, err := checkout.Exec(t.Context(), `UPDATE lane_slots SET tokens = tokens WHERE lane = 'hot' AND slot = -1`); err != nil {
		t.Errorf("the lane's controls are locked: %v", err)
	}
	checkout.Release()
	if err := <-waiting; err != nil {
		t.Error(err)
	}
	b.Want(shoe, requests.Done, "")
	b.Tick(lane)
	b.Want(sock, requests.Done, "")
	b.CheckInvariants()
}
