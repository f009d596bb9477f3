package queues_test

import (
	"log/slog"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/lanetest"
	"github.com/holdfast/holdfast/queues"
	"github.com/holdfast/holdfast/queues/hot"
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
