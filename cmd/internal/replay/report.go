package replay

import (
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/holdfast/holdfast/client"
)

// outOfStock is the reason of a request that found too few units.
const outOfStock = "out_of_stock"

// report counts the outcomes.
func (r *run) report(took time.Duration, latencies []time.Duration) Report {
	report := Report{
		Accepted: r.accepted.Load(), Seconds: rounded(took.Seconds()), Connections: r.config.Connections, Adding: r.config.adding(),
		Baskets: len(r.orders), Items: r.list.Items, BlankLines: r.list.BlankLines, BlankItems: r.list.BlankItems,
	}
	for o := range r.orders {
		for _, outcome := range r.orders[o].outcomes {
			switch outcome {
			case held:
				report.Held++
			case outOfStock:
				report.OutOfStock++
			default:
				report.FailedOther++
			}
		}
	}
	if report.Accepted > 0 {
		report.AcceptMean = milliseconds(time.Duration(r.adding.Load() / report.Accepted))
	}
	slices.Sort(latencies)
	report.P50, report.P99 = milliseconds(Quantile(latencies, 0.5)), milliseconds(Quantile(latencies, 0.99))
	return report
}

// Quantile returns the smallest of the sorted durations that is not exceeded by
// at least the share q of them; 0 without durations.
func Quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[max(0, int(math.Ceil(q*float64(len(sorted))))-1)]
}

func milliseconds(d time.Duration) float64 { return rounded(float64(d) / float64(time.Millisecond)) }

// rounded rounds to two decimal places.
func rounded(x float64) float64 { return math.Round(x*100) / 100 }

// differencesMax is how many differing items are named.
const differencesMax = 20

// compare checks each item's outcomes against its stock before the first add
// and after the last outcome. Holds of other callers do not count, provided
// that they do not change meanwhile. Holds past their deadline are available.
func (r *run) compare(before, after map[string]client.Stock) (differences []string) {
	type count struct{ held, outOfStock, other int64 }
	counts := make(map[string]*count)
	for o := range r.orders {
		for i, item := range r.list.Baskets[o].Items {
			c := counts[item]
			if c == nil {
				c = &count{}
				counts[item] = c
			}
			switch r.orders[o].outcomes[i] {
			case held:
				c.held++
			case outOfStock:
				c.outOfStock++
			default:
				c.other++
			}
		}
	}
	demand := r.list.Demand()
	for _, item := range slices.Sorted(maps.Keys(demand)) {
		c, was, is := counts[item], before[item], after[item]
		want := count{held: min(demand[item], max(0, was.Available))}
		want.outOfStock = demand[item] - want.held
		taken := was.Available - is.Available
		if *c == want && taken == want.held && is.Stock == was.Stock {
			continue
		}
		if len(differences) == differencesMax {
			return append(differences, "and more")
		}
		differences = append(differences, fmt.Sprintf(
			"%q: of %d wanted and %d available, %d held, %d out of stock, %d failed for another reason; want %d held, %d out of stock; the stock went from %d with %d available to %d with %d",
			item, demand[item], was.Available, c.held, c.outOfStock, c.other, want.held, want.outOfStock,
			was.Stock, was.Available, is.Stock, is.Available))
	}
	return differences
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
		fmt.Fprintf(w, "  %-18s p50 %.1f ms, p99 %.1f ms (every %dth, from sending to the known outcome)\n", "an add", r.P50, r.P99, sampleEvery)
	}
	if r.Retries > 0 {
		fmt.Fprintf(w, "  %-18s %9d calls, each with its first key\n", "sent again", r.Retries)
	}
	r.explainRate(w)
	if r.Verified {
		fmt.Fprintf(w, "\nVerified: of every item exactly as many are held as were wanted and available.\n")
		return
	}
	fmt.Fprintf(w, "\nNOT AS IT SHOULD BE:\n")
	for _, d := range r.Differences {
		fmt.Fprintf(w, "  %s\n", d)
	}
}

// explainRate writes what bounds the rate: the waiting callers, and how long
// each waits.
func (r Report) explainRate(w io.Writer) {
	if r.AcceptMean <= 0 {
		return
	}
	fmt.Fprintf(w, "\nThe callers set the pace: %d of %d connections add, each waits %.1f ms for its 202, so %.0f per second is the most\n"+
		"they can add. --connections sets how many there are; `make bench` measures how much the service can take.\n",
		r.Adding, r.Connections, r.AcceptMean, float64(r.Adding)*1000/r.AcceptMean)
}
