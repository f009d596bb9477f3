package traffic

import (
	"fmt"
	"slices"
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

// namesInLine is how many names of invariants are written in one line.
const namesInLine = 5

// writeNames lists the invariants that were checked in SQL.
func (s *sale) writeNames(report verify.Report) {
	var lines []string
	for checks := range slices.Chunk(report.Checks, namesInLine) {
		names := make([]string, len(checks))
		for i, c := range checks {
			names[i] = c.Name
		}
		lines = append(lines, "          "+strings.Join(names, ", "))
	}
	fmt.Fprintln(s.Out, strings.Join(lines, ",\n"))
}

func mark(kept bool) string {
	if kept {
		return "ok    "
	}
	return "BROKEN"
}

// rows are the lines of the tables.
func (s *sale) rows(write func(name string, t *tally)) {
	write("hot, the sale", s.hot)
	write("normal, before it", s.before)
	write("normal, beside it", s.during)
}

func (s *sale) writeCounts() {
	fmt.Fprintf(s.Out, "%-24s %10s %10s %10s %10s\n\n", "Outcomes", "admitted", "held", "sold out", "otherwise")
	s.rows(func(name string, t *tally) {
		c := t.counts()
		fmt.Fprintf(s.Out, "  %-22s %10s %10s %10s %10s\n", name, grouped(c.accepted), grouped(c.held), grouped(c.soldOut), grouped(c.other))
	})
	fmt.Fprintf(s.Out, `
  The first buyer received sold out after %.1f s. Of the hot units %s were checked out at once, and %s went
  back and were held by the next in line. Of the normal ones %s were checked out, %s went back, and %s
  quantities were changed.

`, time.Duration(s.soldOutAfter.Load()).Seconds(), grouped(s.buyers.sold.Load()), grouped(s.buyers.removed.Load()),
		grouped(s.normal.sold.Load()), grouped(s.normal.removed.Load()), grouped(s.normal.changed.Load()))
}

func (s *sale) writeLatencies() {
	fmt.Fprintf(s.Out, "%-24s %21s %21s\n", "Latency, seen by a buyer", "until 202", "until decided")
	fmt.Fprintf(s.Out, "%-24s %10s %10s %10s %10s\n\n", "", "p50", "p99", "p50", "p99")
	s.rows(func(name string, t *tally) {
		accepted, decided := t.latencies()
		fmt.Fprintf(s.Out, "  %-22s %10s %10s %10s %10s\n", name, inMS(accepted.p50), inMS(accepted.p99), inMS(decided.p50), inMS(decided.p99))
	})
	decided := sum(s.hot, s.during).decided()
	fmt.Fprintf(s.Out, "\n  %s requests decided in %.1f s: %s per second, at most %s. The README's rate is far higher, because\n  `make bench` sends as much as the service takes, and here the buyers arrive over a set time.\n\n",
		grouped(decided), s.took.Seconds(), grouped(int64(float64(decided)/s.took.Seconds())), grouped(s.view.peak))
}

// promise is a promise, and whether it was kept.
type promise struct {
	kept bool
	says string
}

// promises checks the outcomes that were received over HTTP against the
// promises.
func (s *sale) promises(left client.Stock) []promise {
	hot, normal := s.hot.counts(), sum(s.before, s.during)
	stock, buyers := int64(s.Stock), int64(s.Buyers)
	sold, removed := s.buyers.sold.Load(), s.buyers.removed.Load()
	held := hot.held - removed - sold
	others := normal.soldOut + normal.other + hot.other
	all := hot.plus(normal)
	doubles, split := s.buyers.doubles.Load(), s.buyers.split.Load()
	return []promise{
		{
			held+sold == stock && left.Reserved == held && left.Stock == held && left.Available == 0,
			fmt.Sprintf("exactly the stock is held: %s held + %s checked out = %s of %s, and the API reports %s reserved, %s available",
				grouped(held), grouped(sold), grouped(held+sold), grouped(stock), grouped(left.Reserved), grouped(left.Available)),
		},
		{
			hot.soldOut == buyers-stock-removed && hot.accepted == buyers,
			fmt.Sprintf("the others received out_of_stock: %s of %s buyers", grouped(hot.soldOut), grouped(buyers)),
		},
		{
			all.accepted == all.decided(),
			fmt.Sprintf("every admitted request was decided: %s of %s", grouped(all.decided()), grouped(all.accepted)),
		},
		{
			others == 0,
			fmt.Sprintf("nothing else failed: %s requests%s", grouped(others), s.firstFailure()),
		},
		{
			split == 0,
			fmt.Sprintf("a second click with the same Idempotency-Key is the same request: %s of %s", grouped(doubles-split), grouped(doubles)),
		},
		{
			s.secondsRefused == len(s.keepers),
			fmt.Sprintf("buyers that requested a second unit received out_of_stock and kept the first: %d of %d", s.secondsRefused, len(s.keepers)),
		},
	}
}

func (s *sale) firstFailure() (text string) {
	s.rows(func(_ string, t *tally) {
		if text == "" && t.firstFailure != "" {
			text = ", the first " + t.firstFailure
		}
	})
	return text
}
