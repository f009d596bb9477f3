package ratelimit

import (
	"bytes"
	"cmp"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/pg"
)

// counter is a rate that a batch counts in. Moments are nanoseconds since 1970.
type counter struct {
	ref       RateRef
	cost      int64 // of all items, taken by queueTake
	tolerance int64 // the widest of the items'
	now       int64
	stored    int64 // the theoretical arrival time in the row
	tat       int64 // the same with the items counted so far; now ≤ tat ≤ now + tolerance
}

// counters are the rates of a batch.
type counters struct {
	byRef  map[RateRef]*counter
	sorted []*counter
	of     [][]*counter // of each item
}

func newCounters(items []Item) counters {
	n := 0
	for i := range items {
		n += len(items[i].cells)
	}
	c := counters{byRef: make(map[RateRef]*counter, n), sorted: make([]*counter, 0, n), of: make([][]*counter, len(items))}
	all, places := make([]counter, 0, n), make([]*counter, 0, n)
	for i := range items {
		item := &items[i]
		for k := range item.cells {
			asked := &item.cells[k]
			ref := RateRef{item.tenant, asked.Scope}
			r := c.byRef[ref]
			if r == nil {
				all = append(all, counter{ref: ref})
				r = &all[len(all)-1]
				c.byRef[ref] = r
				c.sorted = append(c.sorted, r)
			}
			r.tolerance = max(r.tolerance, asked.tolerance)
			if asked.cost < never {
				r.cost += asked.cost
			}
			places = append(places, r)
		}
		c.of[i] = places[len(places)-len(item.cells):]
	}
	slices.SortFunc(c.sorted, func(a, b *counter) int {
		return cmp.Or(bytes.Compare(a.ref.TenantID[:], b.ref.TenantID[:]), cmp.Compare(a.ref.Scope, b.ref.Scope))
	})
	return c
}

// takeRatesSQL counts the whole batch in its rates, even beyond their limits,
// and locks the rows in their order.
const takeRatesSQL = `
WITH clock AS MATERIALIZED (
    SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint * 1000 AS now
)
INSERT INTO budget_rates AS r (tenant_id, scope, full_at)
SELECT coalesce(a.tenant_id, ($1::uuid[])[1]), a.scope, clock.now + a.cost
FROM unnest($1::uuid[], $2::text[], $3::bigint[]) WITH ORDINALITY AS a (tenant_id, scope, cost, place), clock
ORDER BY a.place
ON CONFLICT (tenant_id, scope) DO UPDATE
SET full_at = greatest(r.full_at, (SELECT now FROM clock)) + excluded.full_at - (SELECT now FROM clock)
RETURNING r.tenant_id, r.scope, r.full_at, (SELECT now FROM clock)`

// queueTake adds to b a statement that counts the whole batch. The items that
// exceed a rate are found afterwards, under the locks.
func (c *counters) queueTake(b *pgx.Batch) {
	n := len(c.sorted)
	if n == 0 {
		return
	}
	tenants, scopes := columnsOf(c.sorted)
	costs := make([]int64, n)
	for i, r := range c.sorted {
		costs[i] = r.cost
	}
	b.Queue(takeRatesSQL, tenants, scopes, costs).Query(c.read)
}

// read reads the rows of the rates. The clock was read before the locks were
// granted, so the time spent waiting for them refills nothing. A stored arrival
// time can be further ahead than the tolerance: the window was longer when the
// item was counted, or the clock was set back.
func (c *counters) read(rows pgx.Rows) error {
	var (
		tenant      [16]byte
		scope       string
		fullAt, now int64
	)
	tag, err := pgx.ForEachRow(rows, []any{&tenant, &scope, &fullAt, &now}, func() error {
		r := c.byRef[RateRef{tenant, scope}]
		r.now, r.stored = now, fullAt
		r.tat = min(fullAt-r.cost, now+r.tolerance)
		return nil
	})
	if err != nil {
		return err
	}
	return pg.Reached(len(c.sorted), "counting in rates")(tag)
}

// count counts item i in all its rates and returns -1. If one of them has too
// little left, it counts in none and returns the index of the first such rate.
func (c *counters) count(i int, cells []cell) (exceeded int) {
	for k, r := range c.of[i] {
		if !cells[k].fits(r.now, r.tat) {
			c.uncount(i, cells, k)
			return k
		}
		r.tat += cells[k].cost
	}
	return -1
}

// uncount removes item i from the first n of its rates.
func (c *counters) uncount(i int, cells []cell, n int) {
	for k, r := range c.of[i][:n] {
		r.tat -= cells[k].cost
	}
}

// states returns the states of item i's rates at this point of the batch.
func (c *counters) states(i int, cells []cell, counted bool) []State {
	states := make([]State, len(cells))
	for k, r := range c.of[i] {
		states[k] = cells[k].state(r.now, r.tat, counted)
	}
	return states
}

const settleRatesSQL = `
UPDATE budget_rates r
SET full_at = a.full_at
FROM unnest($1::uuid[], $2::text[], $3::bigint[]) AS a (tenant_id, scope, full_at)
WHERE r.tenant_id = coalesce(a.tenant_id, ($1::uuid[])[1]) AND r.scope = a.scope`

// queueSettle adds to b a statement that writes the rates that differ from
// their rows.
func (c *counters) queueSettle(b *pgx.Batch) {
	differ := slices.DeleteFunc(slices.Clone(c.sorted), func(r *counter) bool { return r.tat == r.stored })
	if len(differ) == 0 {
		return
	}
	tenants, scopes := columnsOf(differ)
	tats := make([]int64, len(differ))
	for i, r := range differ {
		tats[i] = r.tat
	}
	b.Queue(settleRatesSQL, tenants, scopes, tats).Exec(pg.Reached(len(differ), "settling rates"))
}

func columnsOf(rates []*counter) (tenants [][16]byte, scopes []string) {
	tenants, scopes = make([][16]byte, len(rates)), make([]string, len(rates))
	for i, r := range rates {
		tenants[i], scopes[i] = r.ref.TenantID, r.ref.Scope
	}
	return pg.Collapse(tenants), scopes
}
