package audit

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// The wait after a failure doubles up to its bound, even if polls between the
// failures find nothing. It is reset by a delivery.
func TestBackoff(t *testing.T) {
	t.Parallel()
	wait := backoff{poll: 100 * time.Millisecond, max: 500 * time.Millisecond}
	failed, nothing, busy, delivered := errors.New("failed"), TailReport{}, TailReport{Busy: true}, TailReport{Delivered: 1}
	var got []int64
	for _, c := range []struct {
		report TailReport
		err    error
	}{
		{nothing, nil}, {busy, nil}, {delivered, nil},
		{nothing, failed}, {nothing, failed}, {nothing, nil}, {nothing, failed}, {nothing, failed}, {nothing, failed},
		{delivered, nil}, {nothing, failed}, {nothing, failed},
	} {
		got = append(got, wait.after(c.report, c.err).Milliseconds())
	}
	if diff := cmp.Diff([]int64{100, 100, 0, 100, 200, 100, 400, 500, 500, 0, 100, 200}, got); diff != "" {
		t.Errorf("waits in ms (-want +got):\n%s", diff)
	}
}
