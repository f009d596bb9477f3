package main

import (
	"fmt"
	"slices"
)

// Measure is one line of the results.
type Measure struct {
	Measure string  `json:"measure"`
	Value   float64 `json:"value"`
	Unit    string  `json:"unit"`
	// Ours and Other are the medians of Holdfast and the baseline, each in its
	// own unit. Other is 0 without a baseline.
	Ours  float64 `json:"ours"`
	Other float64 `json:"other"`
	// Spread is (largest − smallest) ÷ median of the repetitions' values.
	Spread float64 `json:"spread"`

	Target float64 `json:"target,omitempty"`
	OK     *bool   `json:"ok,omitempty"` // nil without a target, or if the measure is not valid
	Valid  bool    `json:"valid"`
	// Skipped is why the measure could not be taken; it is not valid then.
	// Empty if it was taken.
	Skipped string `json:"skipped,omitempty"`
	// Noisy means that another run may find another figure: the repetitions
	// spread over more than 30 %, or more than 5 % of the CPU was stolen during
	// the run. Note has the reason.
	Noisy bool   `json:"noisy"`
	Note  string `json:"note,omitempty"`
}

// target is the least value that a measure must reach, or with atMost the
// highest that it may have. 0 means no target.
type target struct {
	value  float64
	atMost bool
	what   string
}

// targets has all measures.
var targets = map[string]target{
	"hot_vs_naive":       {22, false, "holds/s on one variant: the drain over a transaction per request, four statements, best of 16 and 64 connections"},
	"hot_vs_handwritten": {8, false, "the same over the best hand-written counter: pipelined, one statement, SELECT FOR UPDATE"},
	"hot_vs_unit_rows":   {4.5, false, "the same over one row per unit with SKIP LOCKED"},
	"hot_vs_microbatch":  {1.1, false, "the same over a micro-batcher inside one process, 64 callers"},
	"hot_vs_redis":       {1.0, false, "the same over a Redis script, appendfsync always, 64 clients"},
	"hot_vs_river":       {25, false, "the same over a River job per request"},
	"hot_vs_limit":       {0.80, false, "the same over the raw statement that writes the same rows"},
	"hot_per_second":     {31_000, false, "holds/s of the drain on one variant"},

	"spread_vs_naive":       {4.0, false, "holds/s on many variants: the drain over a transaction per request, best of 16 and 64 connections"},
	"spread_vs_handwritten": {1.6, false, "the same over the best hand-written form"},

	"http_hot_vs_sync":        {9, false, "add-to-cart calls accepted and decided per second over HTTP, 64 clients, one hot variant, over the synchronous service, four statements"},
	"http_hot_vs_handwritten": {2.5, false, "the same over the synchronous service, pipelined"},
	"http_hot_vs_microbatch":  {0.65, false, "the same over the micro-batcher behind the same router: the price of the queue"},
	"http_accept_p99_vs_sync": {0.5, true, "p99 until the 202 over the synchronous service's p99"},

	"http_wait_vs_sync":              {4, false, "outcomes per second over HTTP, 64 clients that all wait, one hot variant, over the synchronous service, four statements"},
	"http_wait_vs_microbatch":        {0.7, false, "the same over the micro-batcher behind the same router, whose callers always wait"},
	"http_spread_wait_vs_sync":       {3, false, "the same, each call for one of 1,000 variants, over the synchronous service, four statements"},
	"http_outcome_p99_vs_microbatch": {1.8, true, "p99 until the outcome with 64 clients that wait over the micro-batcher's"},
	"lone_p50_vs_microbatch":         {1.6, true, "p50 until the outcome of one client that waits in an idle system over the micro-batcher's"},
	"lone_p99_vs_microbatch":         {2.5, true, "p99 until the outcome of one client that waits in an idle system over the micro-batcher's"},

	"checkout_hot_vs_sync":      {5.5, false, "carts checked out per second over HTTP, 64 clients, each cart with a unit of one hot variant, over the synchronous service, four statements"},
	"checkout_spread_vs_sync":   {1.5, false, "the same, each cart with a unit of one of 1,000 variants"},
	"adds_beside_checkout":      {0.6, false, "add-to-cart calls accepted and decided per second, 32 clients, one hot variant, while 32 clients only check it out, over the same without these"},
	"lone_checkout_p50_vs_sync": {1.5, true, "p50 of the checkout of one client in an idle system over the synchronous service's"},
	"cycle_hot_vs_sync":         {4.5, false, "carts per second that 64 clients fill with one hot variant, waiting for the outcome, and check out, over the synchronous service"},
	"mixed_hot_vs_sync":         {3.5, false, "calls per second that took effect in a mixed sale of one hot variant, 64 clients: 60 % adds, 25 % checkouts, 10 % removals, 5 % changes of quantity, holds that expire after 1 s; over the synchronous service"},

	"isolation_p99":                   {1.5, true, "normal lane's p99 from POST to done during a hot flood of twice what can be drained, over that without a flood"},
	"neighbour_p99":                   {2, true, "p99 until the outcome of one request for a hot variant while another tenant has 50,000 queued, over that without them"},
	"admit_and_decide_vs_handwritten": {5, false, "admission and drain together, in process, 64 callers, one hot variant, over the pipelined form"},
	"units_vs_naive":                  {5, false, "holds/s of any four units of one block, 64 callers, admission and drain together, over SELECT FOR UPDATE SKIP LOCKED in a transaction per caller"},
	"lines_vs_sync":                   {3, false, "carts of five lines, all or none, filled per second in one request each, 1,000 variants, 64 callers, admission and drain together, over a synchronous transaction with a statement for each line"},
	"waitlist_offer_p99_ms":           {100, true, "p99 from the commit that frees a unit until the first of 10,000 in line is announced the offer"},
	"admit_metered_vs_plain":          {0.75, false, "requests admitted per second in groups of 200, each counted in a tenant's and a new customer's rate and spending a token, over plain requests"},
	"isolation_p99_saturated":         {0, true, "the same during a flood of twice the capacity, which leaves no core free: it has no target here, and one on a machine with cores beside the flood"},
	"admit_metered_same_committers":   {0, false, "the same over plain requests in as many concurrent transactions"},
	"projection_vs_drain":             {1, false, "records of one hot variant folded per second into all ready projections, over the drain that makes them"},
	"drain_with_projections":          {0.95, false, "holds/s of the drain on one variant with all ready projections and an open dashboard, over the drain alone"},
	"sweep_vs_rows":                   {32, false, "holds expired per second in batches over row by row"},
	"growth_hot":                      {0.95, false, "holds/s of the drain with finished rows over an empty database"},
	"growth_normal":                   {0.9, false, "holds/s of the normal lane's drains with finished rows over an empty database"},
	"growth_sweep":                    {0.9, false, "holds expired per second with finished rows over an empty database"},
	"year_drain":                      {0.9, false, "holds/s of the drain in a database that has had a year of requests, month by month with its purges and vacuums, over one at the start of its year"},
	"year_reads":                      {0.9, false, "reads per second of a request, its cart and its stock, the same"},
	"year_bytes":                      {0, true, "bytes of tables and indexes at the end of the year per request of the year, with a retention of 168 hours and the whole record"},
	"year_purge_per_second":           {0, false, "finished requests and ended reservations purged per second during the year"},
	"year_vacuum_seconds":             {0, true, "time of a vacuum of all tables at the end of the year"},
	"year_verify_seconds":             {0, true, "time of `holdfast verify` at the end of the year"},
	"year_index_levels":               {0, true, "levels of the deepest index at the end of the year"},
	"wal_vs_naive":                    {1.8, true, "bytes of WAL of a request from 202 to done over the naive transaction's"},
	"wal_post_to_done_vs_naive":       {1.4, true, "bytes of WAL of a request from POST to done, all tables and River's included, over the naive transaction's"},
	"ledger_cpu_us":                   {0, true, "CPU time of a request from POST to done over HTTP, 64 clients, by stage in the note"},
	"ledger_wal_bytes":                {0, true, "bytes of WAL of the same, by table and index in the note"},
	"ledger_statements":               {0, true, "statements of the same, by program in the note"},
	"ledger_wait_cpu_us":              {0, true, "CPU time of a request whose caller waits for the outcome, the same load"},
	"ledger_wait_statement_us":        {0, true, "time of the statements of the same in Postgres, by statement in the note"},
	"ledger_statement_us":             {0, true, "time of the statements of the same in Postgres, by statement in the note"},
	"ledger_bare_us":                  {0, true, "CPU time of a process that only decodes such a call, checks its key and answers"},
	"ledger_microbatch_us":            {0, true, "CPU time of the micro-batcher's process for such a call"},
	"rss_api_mb":                      {128, true, "peak resident memory of the API under the HTTP load"},
	"rss_worker_mb":                   {128, true, "peak resident memory of the worker under the HTTP load"},
	"overload_goodput":                {0.95, false, "requests decided per second at three times the capacity, over the peak"},
	"sustained_end_vs_start":          {0.92, false, "requests decided per second at the end of a load whose holds all expire, over its beginning, when none expire"},
	"cells_vs_one":                    {2.5, false, "outcomes per second over HTTP from three cells, each with 64 clients that wait and a server that may use 0.15 of a core, over one such cell"},
	"cells_cpu":                       {1.15, true, "CPU time of the servers per request of the same"},
	"cells_rss_api_mb":                {128, true, "peak resident memory of the API that serves three cells, under that load"},
	"cells_rss_worker_mb":             {128, true, "peak resident memory of the worker that serves three cells"},
	"sustained_due_seconds":           {20, true, "due holds that are not expired at its end, over the holds made per second"},
	"sustained_read_p99_ms":           {20, true, "p99 of reading the variant's stock over HTTP during that load"},
}

// newMeasure makes a measure of the repetitions' values.
func newMeasure(name, unit string, values []float64) Measure {
	m := Measure{Measure: name, Value: median(values), Unit: unit, Valid: true, Spread: spread(values)}
	m.Ours = m.Value
	m.evaluate()
	return m
}

// between sets the medians of Holdfast and the baseline. A baseline that did
// nothing makes the measure invalid.
func (m *Measure) between(ours, other float64) {
	m.Ours, m.Other = ours, other
	if other <= 0 {
		m.invalid("invalid: the baseline did nothing")
	}
}

// evaluate compares the value with the target.
func (m *Measure) evaluate() {
	t := targets[m.Measure]
	if t.value == 0 {
		return
	}
	ok := m.Value >= t.value
	if t.atMost {
		ok = m.Value <= t.value
	}
	m.Target, m.OK = t.value, &ok
}

// invalid marks the measure as invalid and notes the reason.
func (m *Measure) invalid(why string, args ...any) {
	m.Valid, m.OK = false, nil
	m.note(why, args...)
}

func (m *Measure) note(text string, args ...any) {
	if m.Note != "" {
		m.Note += "; "
	}
	m.Note += fmt.Sprintf(text, args...)
}

// skipped is a measure that could not be taken here.
func skipped(name, why string) Measure {
	m := Measure{Measure: name, Unit: "ratio", Skipped: why}
	m.evaluate()
	m.invalid("skipped: %s", why)
	return m
}

// median of the values; 0 without values.
func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// ratio is 0 without a value to compare with.
func ratio(ours, other float64) float64 {
	if other <= 0 {
		return 0
	}
	return ours / other
}

func spread(values []float64) float64 {
	m := median(values)
	if m == 0 {
		return 0
	}
	return (slices.Max(values) - slices.Min(values)) / m
}
