package traffic

import (
	"fmt"
	"io"
	"math"
	"time"

	"github.com/holdfast/holdfast/client"
)

// Report is the result of a replay. The counts are of items.
type Report struct {
	// Accepted is Held + OutOfStock + FailedOther.
	Accepted    int64 `json:"accepted"`
	Held        int64 `json:"held"`
	OutOfStock  int64 `json:"out_of_stock"`
	FailedOther int64 `json:"failed_other"`
	// Seconds runs from the first add to the last outcome.
	Seconds float64 `json:"seconds"`
	// P50, P99 and Mean are the times from sending an add to knowing its
	// outcome, AcceptMean the average time until its 202. Connections / Mean is
	// the highest possible rate.
	P50         float64 `json:"p50_ms"`
	P99         float64 `json:"p99_ms"`
	Mean        float64 `json:"mean_ms"`
	AcceptMean  float64 `json:"accept_mean_ms"`
	Connections int     `json:"connections"`
	// Verified means that of every item exactly min(demand, available) is held,
	// the other requests failed as out of stock, and the API's stocks agree.
	// Differences names the first items that differ.
	Verified    bool     `json:"verified"`
	Differences []string `json:"differences,omitempty"`
	// Baskets and Items count what was replayed. BlankLines and BlankItems
	// count what was left out of the file.
	Baskets    int `json:"baskets"`
	Items      int `json:"items"`
	BlankLines int `json:"blank_lines"`
	BlankItems int `json:"blank_items"`
	// Retries is how many calls were sent again.
	Retries int64 `json:"retries"`
}

// newReport reports what the tally counted.
func newReport(list basketList, t *tally, took time.Duration) Report {
	c := t.counts()
	accepted, decided := t.latencies()
	return Report{
		Accepted: c.accepted, Held: c.held, OutOfStock: c.soldOut, FailedOther: c.other, Seconds: rounded(took.Seconds()),
		P50: milliseconds(decided.p50), P99: milliseconds(decided.p99), Mean: milliseconds(decided.mean), AcceptMean: milliseconds(accepted.mean),
		Baskets: len(list.baskets), Items: list.items, BlankLines: list.blankLines, BlankItems: list.blankItems,
	}
}

func milliseconds(d time.Duration) float64 { return rounded(float64(d) / float64(time.Millisecond)) }

// rounded rounds to two decimal places.
func rounded(x float64) float64 { return math.Round(x*100) / 100 }

// differencesMax is how many differing items are named.
const differencesMax = 20

// differences compares each item's outcomes with its stock before the first add
// and after the last outcome. Holds of other callers do not count, provided
// that they do not change meanwhile. Holds past their deadline are available.
func differences(items []string, demand map[string]int64, outcomes map[string]counts, before, after map[string]client.Stock) (found []string) {
	for _, item := range items {
		got, was, is := outcomes[item], before[item], after[item]
		want := counts{held: min(demand[item], max(0, was.Available))}
		want.soldOut = demand[item] - want.held
		if got == want && was.Available-is.Available == want.held && is.Stock == was.Stock {
			continue
		}
		if len(found) == differencesMax {
			return append(found, "and more")
		}
		found = append(found, fmt.Sprintf(
			"%q: of %d wanted and %d available, %d held, %d out of stock, %d failed for another reason; want %d held, %d out of stock; the stock went from %d with %d available to %d with %d",
			item, demand[item], was.Available, got.held, got.soldOut, got.other, want.held, want.soldOut,
			was.Stock, was.Available, is.Stock, is.Available))
	}
	return found
}

// Print writes the report as text.
func (r Report) Print(w io.Writer) {
	fmt.Fprintf(w, "%d items of %d baskets", r.Items, r.Baskets)
	if r.BlankLines+r.BlankItems > 0 {
		fmt.Fprintf(w, " (left out: %d blank lines, %d blank items)", r.BlankLines, r.BlankItems)
	}
	fmt.Fprintf(w, "\n\n")
	for _, row := range []struct {
		name  string
		count int64
	}{{"accepted", r.Accepted}, {"held", r.Held}, {"out of stock", r.OutOfStock}, {"other failures", r.FailedOther}} {
		fmt.Fprintf(w, "  %-18s %9d\n", row.name, row.count)
	}
	rate := 0.0
	if r.Seconds > 0 {
		rate = float64(r.Accepted) / r.Seconds
	}
	fmt.Fprintf(w, "\n  %-18s %9.2f s, %.0f per second\n", "until all decided", r.Seconds, rate)
	if r.P50 > 0 {
		fmt.Fprintf(w, "  %-18s p50 %.1f ms, p99 %.1f ms (from sending to the known outcome)\n", "an add", r.P50, r.P99)
	}
	if r.Retries > 0 {
		fmt.Fprintf(w, "  %-18s %9d calls, each with its first key\n", "sent again", r.Retries)
	}
	if r.Mean > 0 {
		fmt.Fprintf(w, "\nThe callers set the pace: each of %d connections waits %.1f ms for its 202 and %.1f ms for its outcome, so %.0f per\n"+
			"second is the most they can add. --connections sets how many there are; `make bench` measures how much the\nservice can take.\n",
			r.Connections, r.AcceptMean, r.Mean, float64(r.Connections)*1000/r.Mean)
	}
	if r.Verified {
		fmt.Fprintf(w, "\nVerified: of every item exactly as many are held as were wanted and available.\n")
		return
	}
	fmt.Fprintf(w, "\nNOT AS IT SHOULD BE:\n")
	for _, d := range r.Differences {
		fmt.Fprintf(w, "  %s\n", d)
	}
}
