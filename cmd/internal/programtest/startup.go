package programtest

import (
	"strconv"
	"testing"

	"github.com/holdfast/holdfast/internal/pgtest"
)

// StartSurvivesCuts starts a program repeatedly. Each time it cuts the
// connection to the database at a later step of the start: after every
// stride-th of the pieces that the program sends until ready returns. ready
// must return every time.
func StartSurvivesCuts(t *testing.T, run Run, fixture *Fixture, stride int, ready func(*testing.T, *Inside), args ...string) {
	t.Helper()
	start := func(t *testing.T, cutAt int) (sent int) {
		t.Helper()
		wire := pgtest.NewWire(t, fixture.URL)
		wire.CutAt(cutAt)
		ready(t, Start(t, run, fixture.Env("DATABASE_URL", wire.URL), args...))
		return wire.Sent()
	}
	sent := start(t, 0)
	for n := 1; n <= sent; n += stride {
		t.Run("cut at step "+strconv.Itoa(n), func(t *testing.T) {
			t.Parallel()
			start(t, n)
		})
	}
}
