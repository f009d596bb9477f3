package demo

import (
	"fmt"
	"strings"
	"time"

	"github.com/holdfast/holdfast/client"
	"github.com/holdfast/holdfast/verify"
)

// conclude writes the result of the sale, and reports whether every promise was
// kept. left is the hot variant's current stock.
func (s *sale) conclude(left client.Stock, report verify.Report) bool {
	s.writeCounts()
	s.writeLatencies()
	fmt.Fprintf(s.Out, "Checked\n\n")
	asPromised := true
	for _, p := range s.promises(left) {
		asPromised = asPromised && p.kept
		fmt.Fprintf(s.Out, "  %s  %s\n", mark(p.kept), p.says)
	}
	fmt.Fprintf(s.Out, "  %s  in SQL, on the database: %s\n", mark(report.OK), report.Summary())
	s.writeNames(report)
	for _, c := range report.Checks {
		if c.Broken > 0 {
			fmt.Fprintf(s.Out, "          %s: %s\n", c.Name, c.Meaning)
			for _, row := range c.Sample {
				fmt.Fprintf(s.Out, "            %s\n", row)
			}
		}
	}
	fmt.Fprintln(s.Out)
	return asPromised && report.OK
}

// lineWidth is the width at which lists are wrapped.
const lineWidth = 100

// writeNames lists the invariants that were checked in SQL.
func (s *sale) writeNames(report verify.Report) {
	const margin = "          "
	line := margin
	for i, c := range report.Checks {
		name := c.Name
		if i < len(report.Checks)-1 {
			name += ", "
		}
		if len(line)+len(name) > lineWidth {
			fmt.Fprintln(s.Out, strings.TrimSuffix(line, " "))
			line = margin
		}
		line += name
	}
	fmt.Fprintln(s.Out, line)
}

func mark(kept bool) string {
	if kept {
		return "ok    "
	}
	return "BROKEN"
}

func (s *sale) writeCounts() {
	fmt.Fprintf(s.Out, "%-24s %10s %10s %10s %10s\n", "Outcomes", "admitted", "held", "sold out", "otherwise")
	fmt.Fprintln(s.Out)
	for _, row := range []struct {
		name string
		of   *tally
	}{{"hot, the sale", &s.hot}, {"normal, before it", &s.before}, {"normal, beside it", &s.during}} {
		fmt.Fprintf(s.Out, "  %-22s %10s %10s %10s %10s\n", row.name, grouped(row.of.accepted.Load()), grouped(row.of.held.Load()),
			grouped(row.of.soldOut.Load()), grouped(row.of.other.Load()))
	}
	a := &s.actions
	fmt.Fprintf(s.Out, `
  The first buyer received sold out after %.1f s. Of the hot units %s were checked out at once, and %s went
  back and were held by the next in line. Of the normal ones %s were checked out, %s went back, and %s
  quantities were changed.

`, time.Duration(s.soldOutAfter.Load()).Seconds(), grouped(a.soldHot.Load()), grouped(a.removedHot.Load()), grouped(a.soldNormal.Load()), grouped(a.removedNormal.Load()), grouped(a.changed.Load()))
}

func (s *sale) writeLatencies() {
	fmt.Fprintf(s.Out, "%-24s %21s %21s\n", "Latency, seen by a buyer", "until 202", "until decided")
	fmt.Fprintf(s.Out, "%-24s %10s %10s %10s %10s\n\n", "", "p50", "p99", "p50", "p99")
	for _, row := range []struct {
		name string
		of   *tally
	}{{"hot, the sale", &s.hot}, {"normal, before it", &s.before}, {"normal, beside it", &s.during}} {
		l := row.of.latencies()
		fmt.Fprintf(s.Out, "  %-22s %10s %10s %10s %10s\n", row.name, inMS(l.accepted50), inMS(l.accepted99), inMS(l.decided50), inMS(l.decided99))
	}
	decided := s.hot.decided() + s.during.decided()
	fmt.Fprintf(s.Out, "\n  %s requests decided in %.1f s: %s per second, at most %s. The README's rate is far higher, because\n  `make bench` sends as much as the service takes, and here the buyers arrive over a set time.\n\n",
		grouped(decided), s.took.Seconds(), grouped(int64(float64(decided)/s.took.Seconds())), grouped(s.rates.peak))
}

// promise is a promise, and whether it was kept.
type promise struct {
	kept bool
	says string
}

// promises checks the outcomes that were received over HTTP against the
// promises.
func (s *sale) promises(left client.Stock) []promise {
	hot, a := &s.hot, &s.actions
	stock, buyers := int64(s.Stock), int64(s.Buyers)
	held := hot.held.Load() - a.removedHot.Load() - a.soldHot.Load()
	others := s.before.soldOut.Load() + s.during.soldOut.Load() + s.before.other.Load() + s.during.other.Load() + hot.other.Load()
	admitted := hot.accepted.Load() + s.before.accepted.Load() + s.during.accepted.Load()
	decided := hot.decided() + s.before.decided() + s.during.decided()
	return []promise{
		{
			held+a.soldHot.Load() == stock && left.Reserved == held && left.Stock == held && left.Available == 0,
			fmt.Sprintf("exactly the stock is held: %s held + %s checked out = %s of %s, and the API reports %s reserved, %s available",
				grouped(held), grouped(a.soldHot.Load()), grouped(held+a.soldHot.Load()), grouped(stock), grouped(left.Reserved), grouped(left.Available)),
		},
		{
			hot.soldOut.Load() == buyers-stock-a.removedHot.Load() && hot.accepted.Load() == buyers,
			fmt.Sprintf("the others received out_of_stock: %s of %s buyers", grouped(hot.soldOut.Load()), grouped(buyers)),
		},
		{
			admitted == decided,
			fmt.Sprintf("every admitted request was decided: %s of %s", grouped(decided), grouped(admitted)),
		},
		{
			others == 0,
			fmt.Sprintf("nothing else failed: %s requests%s", grouped(others), s.firstFailure()),
		},
		{
			a.split.Load() == 0,
			fmt.Sprintf("a second click with the same Idempotency-Key is the same request: %s of %s",
				grouped(a.doubles.Load()-a.split.Load()), grouped(a.doubles.Load())),
		},
		{
			a.secondsRefused == a.seconds,
			fmt.Sprintf("buyers that requested a second unit received out_of_stock and kept the first: %d of %d", a.secondsRefused, a.seconds),
		},
	}
}

func (s *sale) firstFailure() string {
	for _, t := range []*tally{&s.hot, &s.before, &s.during} {
		t.mu.Lock()
		reason := t.firstFailureReason
		t.mu.Unlock()
		if reason != "" {
			return ", the first " + reason
		}
	}
	return ""
}
