package hot_test

import (
	"testing"

	"github.com/holdfast/holdfast/queues/hot"
)

// The database's clock is set back by an hour. The detector still makes passes,
// a busy variant becomes hot in time, and the signals of a process that has
// ended expire.
func TestClockSetBackForTheDetector(t *testing.T) {
	t.Parallel()
	w := newWatched(t, hot.DetectorConfig{})
	w.Stock("shoe", 10)
	w.Stock("sock", 10)
	w.arrives(w.Tenant, "sock", 500, "ended")
	w.arrives(w.Tenant, "shoe", 500, "one")
	w.pass()
	w.later(-3600)
	w.arrives(w.Tenant, "shoe", 500, "one")
	if !w.tryPass().Ran {
		t.Fatal("no pass is made until the clock has caught up")
	}
	w.makeHot(500, "shoe")
	w.wants("shoe")
	if n := w.Int(`SELECT count(*) FROM hot_signals WHERE variant_id = 'sock'`); n != 0 {
		t.Error("a signal with a time in the future is kept")
	}

	// The time for which it has been hot counts too: a busier variant replaces
	// it.
	full := newWatched(t, hot.DetectorConfig{VariantsMax: 1})
	full.Stock("shoe", 10)
	full.Stock("sock", 10)
	full.makeHot(500, "shoe")
	full.wants("shoe")
	full.later(-3600)
	for range 5 {
		full.arrives(full.Tenant, "shoe", 120, "one")
		full.arrives(full.Tenant, "sock", 5000, "one")
		full.pass()
	}
	full.wants("sock")
}
