package lanes_test

import (
	"testing"

	"github.com/holdfast/holdfast/internal/lanes"
	"github.com/holdfast/holdfast/internal/pgtest"
)

func TestEither(t *testing.T) {
	t.Parallel()
	if got := lanes.Either(lanes.All()); got != "hot or normal" {
		t.Errorf("the lanes are %q", got)
	}
	if got := lanes.Either(lanes.Wishes()); got != "auto, hot or normal" {
		t.Errorf("the wishes are %q", got)
	}
}

// Every lane has its controls, and ParallelSlots has the slots of every lane but
// the hot one. All and the schema name the same lanes.
func TestLanesOfTheSchema(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	pgtest.Exec(t, db, `INSERT INTO lane_slots (lane, slot) VALUES ('hot', 0)`)
	streams, err := lanes.Streams(t.Context(), db)
	if err != nil {
		t.Fatal(err)
	}
	slots := map[lanes.Lane]int64{}
	for _, stream := range streams {
		slots[stream.Lane]++
	}
	for _, lane := range lanes.All() {
		if n := pgtest.Int(t, db, `SELECT count(*) FROM `+lanes.Controls+` control WHERE lane = $1`, lane); n != 1 {
			t.Errorf("lane %s has %d rows of controls", lane, n)
		}
		want := int64(0)
		if lane != lanes.Hot {
			want = slots[lane]
		}
		if n := pgtest.Int(t, db, `SELECT count(*) FROM `+lanes.ParallelSlots+` parallel WHERE lane = $1`, lane); slots[lane] == 0 || n != want {
			t.Errorf("lane %s has %d slots, of which %d are in ParallelSlots, want %d", lane, slots[lane], n, want)
		}
		delete(slots, lane)
	}
	if len(slots) > 0 {
		t.Errorf("the schema has slots of lanes that All does not name: %v", slots)
	}
}
