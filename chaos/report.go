package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/holdfast/holdfast/internal/chaos/check"
	"github.com/holdfast/holdfast/internal/chaos/stage"
	"github.com/holdfast/holdfast/internal/chaos/traffic"
)

// report is the result of a storm.
type report struct {
	OK           bool                          `json:"ok"`
	Seed         uint64                        `json:"seed"`
	Seconds      float64                       `json:"seconds"`
	Faults       map[stage.Kind]int            `json:"faults"`
	Cuts         int                           `json:"commits_cut"`
	Sent         int                           `json:"requests_sent"`
	Acknowledged int                           `json:"requests_acknowledged"`
	Decided      int                           `json:"requests_decided"`
	Samples      int                           `json:"samples"`
	SpotChecks   int                           `json:"spot_checks"`
	Checked      check.Sum                     `json:"checked"`
	DrainSeconds float64                       `json:"drain_seconds"`
	Decisions    map[string]check.Decisions    `json:"decisions_of_unlocked"` // by lane
	WorstAdd     float64                       `json:"worst_add_seconds"`
	Recoveries   int                           `json:"recoveries"`
	Recovery     float64                       `json:"median_recovery_seconds"`
	WorstRecover float64                       `json:"worst_recovery_seconds"`
	Moved        int                           `json:"tenants_moved,omitempty"`
	StoppedIn    int                           `json:"stopped_with_an_error_in_an_outage"`
	Calls        map[string]traffic.VerbReport `json:"calls"`
	Logs         map[string]stage.Volume       `json:"logs"`
	Errors       map[string]int                `json:"postgres_errors"`
	Unexplained  map[string]int                `json:"postgres_errors_unexplained"`
	Upgrade      *upgradeReport                `json:"upgrade,omitempty"`
	Violations   []traffic.Violation           `json:"violations"`

	options     options
	plan        []stage.Fault
	findings    *traffic.Findings
	began       time.Time
	storm       time.Duration
	drained     time.Duration
	reread      int
	errors      []*stage.Entry
	unexplained map[string]int
	counts      map[string]map[string]int // by program, the number of lines of each sort
}

// gather collects the figures.
func (r *report) gather(t *harness, b *injector, calls *traffic.Traffic) {
	r.Seed, r.Seconds, r.DrainSeconds, r.SpotChecks = r.options.seed, r.storm.Seconds(), r.drained.Seconds(), r.reread
	r.Faults, r.Logs, r.counts = make(map[stage.Kind]int), make(map[string]stage.Volume), make(map[string]map[string]int)
	for _, w := range t.line.Windows() {
		r.Faults[w.Kind]++
	}
	for _, name := range stage.Programs {
		r.Cuts += t.routes[name].Cuts()
		r.Logs[name] = t.programs[name].Log.Volume()
		r.counts[name] = r.Logs[name].Counts
	}
	r.Sent, r.Acknowledged, r.Decided = calls.Record.Counts()
	r.Samples, r.StoppedIn, r.Moved = b.samples, b.late, b.moved
	r.WorstAdd = calls.WorstAdd().Seconds()
	count, median, worst := calls.Recovery.Sum()
	r.Recoveries, r.Recovery, r.WorstRecover = count, median.Seconds(), worst.Seconds()
	r.Calls, r.Errors, r.Unexplained = calls.Calls(), stage.CountErrors(r.errors), r.unexplained
	if b.upgrading != nil {
		r.Upgrade = b.upgrading.report(r.options)
	}
	r.Violations = r.findings.Kinds()
	r.OK = len(r.Violations) == 0
}

// print writes the report as JSON or as text.
func (r *report) print(w io.Writer, asJSON bool) error {
	if asJSON {
		e := json.NewEncoder(w)
		e.SetEscapeHTML(false)
		return e.Encode(r)
	}
	var out strings.Builder
	fmt.Fprintf(&out, "\nseed %d, %.0fs: %d faults (%s), %d commits cut\n", r.Seed, r.Seconds, len(r.plan), stage.CountFaults(r.plan), r.Cuts)
	fmt.Fprintf(&out, "%d requests sent, %d acknowledged, %d seen decided; all decided %.1fs after the storm; %d samples, %d read again from each API\n",
		r.Sent, r.Acknowledged, r.Decided, r.DrainSeconds, r.Samples, r.SpotChecks)
	fmt.Fprintf(&out, "checked: %d requests (%d for their order), %d reservations, %d calls that finish at once, %d audit rows\n",
		r.Checked.Requests, r.Checked.Ordered, r.Checked.Reservations, r.Checked.Verbs, r.Checked.AuditRows)
	fmt.Fprintf(&out, "the slowest add took %.1fs; recovery (%d measured) took %.2fs at the median, %.1fs at worst; %d programs stopped with an error in an outage\n",
		r.WorstAdd, r.Recoveries, r.Recovery, r.WorstRecover, r.StoppedIn)
	for _, lane := range slices.Sorted(maps.Keys(r.Decisions)) {
		d := r.Decisions[lane]
		fmt.Fprintf(&out, "%d adds to the %s lane of variants that no fault kept locked: decided %.1f ms after they were accepted at p50, %.1f ms at p99\n", d.Adds, lane, d.P50MS, d.P99MS)
	}
	if r.options.cells > 0 {
		fmt.Fprintf(&out, "%d moves of tenants among %d cells\n", r.Moved, r.options.cells)
	}
	if r.Upgrade != nil {
		r.Upgrade.print(&out)
	}
	fmt.Fprintf(&out, "\n%-14s %8s %9s %9s %8s  answers\n", "call", "attempts", "p50 ms", "p99 ms", "worst s")
	for _, verb := range slices.Sorted(maps.Keys(r.Calls)) {
		v := r.Calls[verb]
		fmt.Fprintf(&out, "%-14s %8d %9.1f %9.1f %8.1f  %s\n", verb, v.Attempts, v.P50MS, v.P99MS, v.WorstSeconds, most(v.Answers, 8))
	}
	fmt.Fprintln(&out)
	for _, name := range slices.Sorted(maps.Keys(r.Logs)) {
		v := r.Logs[name]
		fmt.Fprintf(&out, "%s logged %d lines, %d in the worst second: %s\n", name, v.Lines, v.Worst, most(r.counts[name], 6))
	}
	fmt.Fprintf(&out, "Postgres logged %d errors: %s\n", len(r.errors), most(r.Errors, 10))
	if r.OK {
		fmt.Fprintln(&out, "\nNo violation.")
	}
	for _, k := range r.Violations {
		fmt.Fprintf(&out, "\nVIOLATED %d times: %s\n", k.Count, k.Name)
		for _, s := range k.Samples {
			fmt.Fprintf(&out, "    %s\n", s)
		}
	}
	if !r.OK {
		fmt.Fprintf(&out, "\nAgain: go run ./chaos -for %s -seed %d -shoppers %d%s\n", r.options.length, r.Seed, r.options.shoppers, r.options.again())
	}
	_, err := io.WriteString(w, out.String())
	return err
}

func most3(counts map[string]int) string { return most(counts, 3) }

// most returns the highest counts, highest first, on one line.
func most(counts map[string]int, n int) string {
	keys := slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		return cmp.Or(counts[b]-counts[a], strings.Compare(a, b))
	})
	var parts []string
	for _, k := range keys[:min(n, len(keys))] {
		parts = append(parts, fmt.Sprintf("%s (%d)", k, counts[k]))
	}
	if rest := len(keys) - len(parts); rest > 0 {
		parts = append(parts, fmt.Sprintf("and %d more", rest))
	}
	return strings.Join(parts, ", ")
}
