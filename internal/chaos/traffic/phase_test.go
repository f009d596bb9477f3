package traffic

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/google/uuid"
)

// An attempt counts in each phase in which it was open, and once in the whole
// run. One that was not served counts in the phase in which programs were
// replaced, if it was open then, and otherwise in the phase in which it ended.
func TestPhases(t *testing.T) {
	t.Parallel()
	traffic := New(Config{})
	took := 10 * time.Millisecond
	refused := &reply{status: http.StatusServiceUnavailable, code: "overloaded"}
	traffic.phases.note(traffic.phases.present(), verbAdd, refused, took) // before all phases
	traffic.Phase("before", false)
	before := traffic.phases.present()
	traffic.phases.note(before, verbAdd, &reply{status: http.StatusAccepted}, took)
	traffic.phases.note(before, "remove", refused, took)
	traffic.Phase("replacing", true)
	traffic.phases.note(before, verbAdd, &reply{status: http.StatusConflict}, 3*took)
	during := traffic.phases.present()
	traffic.Phase("after", false)
	traffic.phases.note(during, verbAdd, &reply{}, 2*took)
	traffic.phases.note(before, "set", &reply{status: http.StatusInternalServerError}, took)
	traffic.phases.note(traffic.phases.present(), verbAdd, &reply{status: http.StatusTooManyRequests, code: "over_limit"}, took)
	traffic.EndPhases()
	want := []PhaseReport{
		{Name: "all", Adds: 4, P50MS: 10, P99MS: 20, MaxMS: 30, Attempts: 6, Unserved: map[string]int{
			"remove 503 overloaded": 1, "add 0 ": 1, "set 500 ": 1, "add 429 over_limit": 1,
		}},
		{Name: "before", Adds: 2, P50MS: 10, P99MS: 10, MaxMS: 30, Attempts: 4, Unserved: map[string]int{"remove 503 overloaded": 1}},
		{Name: "replacing", Replacing: true, Adds: 2, P50MS: 20, P99MS: 20, MaxMS: 30, Attempts: 3, Unserved: map[string]int{"add 0 ": 1, "set 500 ": 1}},
		{Name: "after", Adds: 2, P50MS: 10, P99MS: 10, MaxMS: 20, Attempts: 3, Unserved: map[string]int{"add 429 over_limit": 1}},
	}
	got := traffic.Phases()
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(PhaseReport{}, "Seconds")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got[0].Seconds < got[1].Seconds+got[2].Seconds || traffic.Phases()[3].Seconds != got[3].Seconds {
		t.Errorf("the phases' lengths: %+v", got)
	}
}

// Calls are measured. The time of an add includes the time during which its
// process was down.
func TestPhasesMeasureCalls(t *testing.T) {
	t.Parallel()
	id := uuid.New()
	d := newDesk(t, func(n int, w http.ResponseWriter) {
		if n == 0 {
			problem(w, http.StatusServiceUnavailable, "overloaded")
			return
		}
		w.WriteHeader(http.StatusAccepted)
		fmt.Fprintf(w, `{"request_id":%q,"status":"queued"}`, id)
	})
	d.apis[0].Down = func(from, to time.Time) time.Duration { return to.Sub(from) }
	d.Phase("before", false)
	d.submit(t.Context(), d.request("key"))
	if all := d.Phases()[0]; all.Adds != 2 || all.MaxMS == 0 || all.Unserved["add 503 overloaded"] != 1 {
		t.Errorf("%+v, want two adds, of which one was refused", all)
	}
}
