package metered

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/internal/unnest"
)

// rate is one that a group is counted in. Moments are nanoseconds since 1970.
type rate struct {
	key    rateKey
	cost   int64 // of all the group
	taken  int64 // beforehand: the same, or nothing of a rate that can't have room for it
	bound  int64 // the narrowest of the group's
	seen   bool
	now    int64
	stands int64 // when it is full again, as its row says
	level  int64 // the same, with the visits let in so far; never before now
}

// counting are the rates of a group.
type counting struct {
	rates map[rateKey]*rate
	order []*rate   // of their keys
	of    [][]*rate // of each visit
}

func newCounting(visits []Visit) counting {
	c := counting{rates: make(map[rateKey]*rate, len(visits)), of: make([][]*rate, len(visits))}
	for place, v := range visits {
		c.of[place] = make([]*rate, len(v.rates))
		for i := range v.rates {
			asked := &v.rates[i]
			key := rateKey{v.tenant, asked.Scope}
			r := c.rates[key]
			if r == nil {
				r = &rate{key: key, bound: asked.bound}
				c.rates[key] = r
				c.order = append(c.order, r)
			}
			r.bound = min(r.bound, asked.bound)
			if asked.cost < never {
				r.cost += asked.cost
			}
			c.of[place][i] = r
		}
	}
	for _, r := range c.order {
		if r.cost <= r.bound {
			r.taken = r.cost
		}
	}
	slices.SortFunc(c.order, func(a, b *rate) int {
		return cmp.Or(bytes.Compare(a.key.tenant[:], b.key.tenant[:]), cmp.Compare(a.key.scope, b.key.scope))
	})
	return c
}

// takeRatesSQL counts the whole group in each rate that has room for it. It locks them all: nobody waits for a rate after
// another one behind it.
const takeRatesSQL = `
WITH clock AS MATERIALIZED (
    SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint * 1000 AS now
)
INSERT INTO budget_rates AS r (tenant_id, scope, full_at, bound)
SELECT coalesce(a.tenant_id, ($1::uuid[])[1]), a.scope, clock.now + a.cost, coalesce(a.bound, ($4::bigint[])[1])
FROM unnest($1::uuid[], $2::text[], $3::bigint[], $4::bigint[]) WITH ORDINALITY AS a (tenant_id, scope, cost, bound, place), clock
ORDER BY a.place
ON CONFLICT (tenant_id, scope) DO UPDATE
SET full_at = greatest(r.full_at, (SELECT now FROM clock)) + excluded.full_at - (SELECT now FROM clock), bound = excluded.bound
WHERE greatest(r.full_at, (SELECT now FROM clock)) + excluded.full_at <= 2 * (SELECT now FROM clock) + excluded.bound
RETURNING r.tenant_id, r.scope, r.full_at, (SELECT now FROM clock)`

// queueTake adds to the batch what counts the group wherever all of it fits.
func (c *counting) queueTake(b *pgx.Batch) {
	n := len(c.order)
	if n == 0 {
		return
	}
	tenants, scopes := rateColumns(c.order)
	costs, bounds := make([]int64, n), make([]int64, n)
	for i, r := range c.order {
		costs[i], bounds[i] = r.taken, r.bound
	}
	b.Queue(takeRatesSQL, tenants, scopes, costs, unnest.Once(bounds)).Query(c.each(func(r *rate) { r.level = r.stands - r.taken }))
}

// lookRatesSQL reads rates that are there and locked.
const lookRatesSQL = `
SELECT r.tenant_id, r.scope, r.full_at, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint * 1000
FROM unnest($1::uuid[], $2::text[]) AS a (tenant_id, scope)
JOIN budget_rates r ON r.tenant_id = coalesce(a.tenant_id, ($1::uuid[])[1]) AND r.scope = a.scope`

// queueLook adds to the batch what reads the rates that had no room for all of the group.
func (c *counting) queueLook(b *pgx.Batch) {
	unseen := slices.DeleteFunc(slices.Clone(c.order), func(r *rate) bool { return r.seen })
	if len(unseen) == 0 {
		return
	}
	tenants, scopes := rateColumns(unseen)
	b.Queue(lookRatesSQL, tenants, scopes).Query(c.each(func(r *rate) { r.level = max(r.stands, r.now) }))
}

// each reads the rows of rates.
func (c *counting) each(take func(*rate)) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		var (
			tenant      [16]byte
			scope       string
			fullAt, now int64
		)
		_, err := pgx.ForEachRow(rows, []any{&tenant, &scope, &fullAt, &now}, func() error {
			r := c.rates[rateKey{tenant, scope}]
			r.seen, r.stands, r.now = true, fullAt, now
			take(r)
			return nil
		})
		return err
	}
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
SET full_at = a.full_at, bound = a.bound
FROM unnest($1::uuid[], $2::text[], $3::bigint[], $4::bigint[]) AS a (tenant_id, scope, full_at, bound)
WHERE r.tenant_id = coalesce(a.tenant_id, ($1::uuid[])[1]) AND r.scope = a.scope`

// queueSettle adds to the batch what makes the rows say what was decided.
func (c *counting) queueSettle(b *pgx.Batch) {
	off := slices.DeleteFunc(slices.Clone(c.order), func(r *rate) bool { return r.level == r.stands })
	if len(off) == 0 {
		return
	}
	tenants, scopes := rateColumns(off)
	levels, bounds := make([]int64, len(off)), make([]int64, len(off))
	for i, r := range off {
		levels[i], bounds[i] = r.level, r.bound
	}
	b.Queue(settleRatesSQL, tenants, scopes, levels, bounds).Exec(exactly(len(off), "settling rates"))
}

func rateColumns(rates []*rate) (tenants [][16]byte, scopes []string) {
	tenants, scopes = make([][16]byte, len(rates)), make([]string, len(rates))
	for i, r := range rates {
		tenants[i], scopes[i] = r.key.tenant, r.key.scope
	}
	return unnest.Once(tenants), scopes
}

// RatePosition is how far a purge of rates has come; the zero value is the beginning.
type RatePosition struct {
	TenantID uuid.UUID
	Scope    string
}

// PurgedRates is what a purge of rates did.
type PurgedRates struct {
	// Last is the last rate it looked at, where the next purge goes on; More says that there may be others behind it.
	Last    RatePosition
	More    bool
	Deleted int64
}

// purgeRatesSQL compares the clock with rows, not with an index: full_at has none, so that counting stays cheap.
const purgeRatesSQL = `
WITH piece AS MATERIALIZED (
    SELECT r.tenant_id, r.scope, r.full_at < (SELECT extract(epoch FROM clock_timestamp()) * 1000000000) AS idle
    FROM budget_rates r
    WHERE (r.tenant_id, r.scope) > ($1, $2)
    ORDER BY r.tenant_id, r.scope
    LIMIT $3
), idle AS MATERIALIZED (
    SELECT r.tenant_id, r.scope
    FROM piece
    JOIN budget_rates r USING (tenant_id, scope)
    WHERE piece.idle AND r.full_at < (SELECT extract(epoch FROM clock_timestamp()) * 1000000000)
    FOR UPDATE OF r SKIP LOCKED
), deleted AS (
    DELETE FROM budget_rates r
    USING idle
    WHERE r.tenant_id = idle.tenant_id AND r.scope = idle.scope
    RETURNING r.scope
)
SELECT p.tenant_id, p.scope, (SELECT count(*) FROM deleted) AS deleted, (SELECT count(*) FROM piece) AS looked
FROM piece p
ORDER BY p.tenant_id DESC, p.scope DESC
LIMIT 1`

// PurgeRates looks at up to limit rates behind a position, of all tenants, and deletes those that are full: they say what
// a rate without a row says. Several may run at once.
func PurgeRates(ctx context.Context, db *pgxpool.Pool, after RatePosition, limit int) (purged PurgedRates, err error) {
	var tenant [16]byte
	var looked int64
	err = db.QueryRow(ctx, purgeRatesSQL, after.TenantID, after.Scope, limit).Scan(&tenant, &purged.Last.Scope, &purged.Deleted, &looked)
	if err == pgx.ErrNoRows { //nolint:errorlint // as pgx returns it
		return PurgedRates{}, nil
	}
	if err != nil {
		return PurgedRates{}, fmt.Errorf("purge rates: %w", err)
	}
	purged.Last.TenantID, purged.More = tenant, looked == int64(limit)
	return purged, nil
}
