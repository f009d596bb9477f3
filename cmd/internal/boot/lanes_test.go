package boot

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/sethvargo/go-envconfig"

	"github.com/holdfast/holdfast/cmd/internal/config"
	"github.com/holdfast/holdfast/internal/lanes"
)

// By default a worker serves every lane, and
// WORKER_LANES chooses among them.
func TestServedLanes(t *testing.T) {
	t.Parallel()
	for value, want := range map[string][]lanes.Lane{
		"":           lanes.All(),
		"normal":     {lanes.Normal},
		"normal,hot": {lanes.Hot, lanes.Normal},
	} {
		c, err := config.Load(t.Context(), envconfig.MapLookuper(map[string]string{"WORKER_LANES": value}))
		if err != nil {
			t.Fatal(err)
		}
		p := &Program{Config: c}
		var got []lanes.Lane
		for _, lane := range lanes.All() {
			if !p.lane(lane, 0, 0).Off {
				got = append(got, lane)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("WORKER_LANES=%q serves other lanes (-want +got):\n%s", value, diff)
		}
	}
}
