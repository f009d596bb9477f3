package ready

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/holdfast/holdfast/internal/pgtest"
)

// BenchmarkWindow reads and writes the states with full windows, as each
// delivery does.
func BenchmarkWindow(b *testing.B) {
	var r Rate
	var l Latency
	random := rand.New(rand.NewPCG(1, 2))
	for i := range 181 * 200 {
		took := time.Duration(math.Exp(random.NormFloat64()+3) * float64(time.Millisecond))
		e := hold(Held, time.Duration(i)*bucketLength/200+took, 1)
		e.TargetID = requestAt(e.At.Add(-took))
		applyRate(&r, e)
		applyLatency(&l, e)
	}
	for name, state := range map[string]any{"rate": &r, "latency": &l} {
		b.Run(name, func(b *testing.B) {
			text, err := json.Marshal(state)
			pgtest.Must(b, err)
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				pgtest.Must(b, json.Unmarshal(text, state))
				if _, err := json.Marshal(state); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
