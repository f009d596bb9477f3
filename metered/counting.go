package metered

import (
	"bytes"
	"cmp"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/unnest"
)

// rate is one that a group is counted in. Moments are nanoseconds since 1970.
type rate struct {
	key    rateKey
	cost   int64 // of all the group, taken beforehand
	bound  int64 // the widest of the group's
	now    int64
	stands int64 // when it is full again, as its row says
	level  int64 // the same, with the visits let in so far; neither before now nor further ahead than bound
}

// counting are the rates of a group.
type counting struct {
	rates map[rateKey]*rate
	order []*rate   // of their keys
	of    [][]*rate // of each visit
}

func newCounting(visits []Visit) counting {
	n := 0
	for i := range visits {
		n += len(visits[i].rates)
	}
	c := counting{rates: make(map[rateKey]*rate, n), order: make([]*rate, 0, n), of: make([][]*rate, len(visits))}
	all, places := make([]rate, 0, n), make([]*rate, 0, n)
	for i := range visits {
		v := &visits[i]
		for k := range v.rates {
			asked := &v.rates[k]
			key := rateKey{v.tenant, asked.Scope}
			r := c.rates[key]
			if r == nil {
				all = append(all, rate{key: key})
				r = &all[len(all)-1]
				c.rates[key] = r
				c.order = append(c.order, r)
			}
			r.bound = max(r.bound, asked.bound)
			if asked.cost < never {
				r.cost += asked.cost
			}
			places = append(places, r)
		}
		c.of[i] = places[len(places)-len(v.rates):]
	}
	slices.SortFunc(c.order, func(a, b *rate) int {
		return cmp.Or(bytes.Compare(a.key.tenant[:], b.key.tenant[:]), cmp.Compare(a.key.scope, b.key.scope))
	})
	return c
}

// takeRatesSQL counts the whole group in its rates, room or not, and locks them in their order.
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

// queueTake adds to the batch what counts the whole group. Who is too many is found out afterwards, under the locks.
func (c *counting) queueTake(b *pgx.Batch) {
	n := len(c.order)
	if n == 0 {
		return
	}
	tenants, scopes := rateColumns(c.order)
	costs := make([]int64, n)
	for i, r := range c.order {
		costs[i] = r.cost
	}
	b.Queue(takeRatesSQL, tenants, scopes, costs).Query(c.read)
}

// read reads the rows of the rates. The clock was read before the locks were granted, so what has come back since counts
// for less. A rate can be further from full than its window: it was longer when it was counted, or the clock was set back.
func (c *counting) read(rows pgx.Rows) error {
	var (
		tenant      [16]byte
		scope       string
		fullAt, now int64
	)
	tag, err := pgx.ForEachRow(rows, []any{&tenant, &scope, &fullAt, &now}, func() error {
		r := c.rates[rateKey{tenant, scope}]
		r.now, r.stands = now, fullAt
		r.level = min(fullAt-r.cost, now+r.bound)
		return nil
	})
	if err != nil {
		return err
	}
	return exactly(len(c.order), "counting in rates")(tag)
}

// count counts the visit at a place in all its rates, or in none if one has no room for it, or it is not to be let in for
// another reason. It says how they stand then, and which was the first to have no room.
func (c *counting) count(place int, asked []counted, allowed bool) ([]Standing, *OverRateError) {
	rates, standings, fit := c.of[place], make([]Standing, len(asked)), 0
	for fit < len(asked) && asked[fit].fits(rates[fit].now, rates[fit].level) {
		rates[fit].level += asked[fit].cost
		fit++
	}
	let := allowed && fit == len(asked)
	if !let {
		for i := range fit {
			rates[i].level -= asked[i].cost
		}
	}
	for i, r := range rates {
		standings[i] = asked[i].standing(r.now, r.level, let)
	}
	if fit < len(asked) {
		return standings, &OverRateError{asked[fit].Rate, standings[fit]}
	}
	return standings, nil
}

const settleRatesSQL = `
UPDATE budget_rates r
SET full_at = a.full_at
FROM unnest($1::uuid[], $2::text[], $3::bigint[]) AS a (tenant_id, scope, full_at)
WHERE r.tenant_id = coalesce(a.tenant_id, ($1::uuid[])[1]) AND r.scope = a.scope`

// queueSettle adds to the batch what makes the rows say what was decided.
func (c *counting) queueSettle(b *pgx.Batch) {
	off := slices.DeleteFunc(slices.Clone(c.order), func(r *rate) bool { return r.level == r.stands })
	if len(off) == 0 {
		return
	}
	tenants, scopes := rateColumns(off)
	levels := make([]int64, len(off))
	for i, r := range off {
		levels[i] = r.level
	}
	b.Queue(settleRatesSQL, tenants, scopes, levels).Exec(exactly(len(off), "settling rates"))
}

func rateColumns(rates []*rate) (tenants [][16]byte, scopes []string) {
	tenants, scopes = make([][16]byte, len(rates)), make([]string, len(rates))
	for i, r := range rates {
		tenants[i], scopes[i] = r.key.tenant, r.key.scope
	}
	return unnest.Once(tenants), scopes
}
