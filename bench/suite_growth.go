package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/holdfast/holdfast/bench/baselines"
	"github.com/holdfast/holdfast/internal/lanes"
)

const (
	emptyDrain  = "holdfast drain, empty database"
	fullDrain   = "holdfast drain, full database"
	emptySpread = "holdfast drain of the normal lane, empty database"
	fullSpread  = "holdfast drain of the normal lane, full database"
	emptySweep  = "holdfast sweep, empty database"
	fullSweep   = "holdfast sweep, full database"
)

// growth compares a database that has the finished rows of a week with an empty
// one.
func (b *bench) growth(ctx context.Context) ([]Measure, error) {
	empty, full, err := b.emptyAndFull(ctx)
	if err != nil {
		return nil, err
	}
	defer empty.close()
	defer full.close()
	for from := 1; from <= b.rows; from += ageChunk {
		if err := b.age(ctx, full, from, min(from+ageChunk-1, b.rows), "6 days", "5 days"); err != nil {
			return nil, err
		}
	}
	if err := full.settle(ctx); err != nil {
		return nil, err
	}
	c, err := b.compareAges(ctx, b.drainOn(empty, emptyDrain, lanes.Hot), b.drainOn(full, fullDrain, lanes.Hot),
		b.drainOn(empty, emptySpread, lanes.Normal), b.drainOn(full, fullSpread, lanes.Normal),
		b.sweepContender(empty, emptySweep, false), b.sweepContender(full, fullSweep, false))
	if err != nil {
		return nil, err
	}
	measures := []Measure{
		c.over("growth_hot", fullDrain, emptyDrain), c.over("growth_normal", fullSpread, emptySpread), c.over("growth_sweep", fullSweep, emptySweep),
	}
	for i := range measures {
		measures[i].note("%s finished requests and reservations", group(fmt.Sprint(b.rows)))
	}
	return measures, nil
}

// emptyAndFull makes two databases with the same stocks, of which one will be
// filled.
func (b *bench) emptyAndFull(ctx context.Context) (empty, full *environment, err error) {
	if empty, err = b.newEnvironment(ctx); err != nil {
		return nil, nil, err
	}
	if full, err = b.newEnvironment(ctx); err != nil {
		empty.close()
		return nil, nil, err
	}
	for _, g := range []*environment{empty, full} {
		if err := g.reset(ctx, max(sweepVariants, b.variants), true); err != nil {
			empty.close()
			full.close()
			return nil, nil, err
		}
	}
	return empty, full, nil
}

// compareAges compares contenders on an empty and on a full database.
func (b *bench) compareAges(ctx context.Context, contenders ...*contender) (comparison, error) {
	if err := b.checkpoint(ctx); err != nil {
		return nil, err
	}
	// The first write to a page after a checkpoint logs the whole page. A
	// checkpoint every few seconds would charge an old database for that a
	// hundred times as often as a server does.
	b.writesOn = true
	defer func() { b.writesOn = false }()
	// Neither database is emptied between repetitions: files that grow a second
	// time take memory that the machine has at hand, which here halves the
	// price of a new page.
	return b.compare(ctx, contenders...)
}

// drainOn is the drain of a lane on a database that keeps its rows.
func (b *bench) drainOn(g *environment, name string, lane lanes.Lane) *contender {
	served, slot, wakes, variant, rate := g.hot, g.slot, 1, firstOf, drainName
	if lane == lanes.Normal {
		served, slot, wakes, rate = g.normal, 0, g.normal.Concurrency(), spreadName
		variant = func() string { return baselines.VariantID(1 + rand.IntN(max(sweepVariants, b.variants)-1)) } //nolint:gosec // no secret
	}
	var before counts
	return &contender{
		name: name,
		prepare: func(ctx context.Context) (err error) {
			if before, err = countRows(ctx, g.unbounded); err != nil {
				return err
			}
			return g.queue(ctx, lane, slot, b.work(rate, b.long), variant)
		},
		run: func(ctx context.Context, _ time.Duration) (sample, error) {
			s, err := serveLane(ctx, served, slot, wakes)
			b.note(rate, s)
			return s, err
		},
		check: func(ctx context.Context, s sample) error {
			after, err := countRows(ctx, g.unbounded)
			want := before
			want.done, want.held, want.audited, want.reserved = before.done+s.count, before.held+s.count, before.audited+s.count, before.reserved+s.count
			if err == nil && after != want {
				err = fmt.Errorf("the rows do not add up: %+v, want %+v", after, want)
			}
			return err
		},
	}
}

const (
	// ageSQL makes finished requests, one in two for the hot variant, their
	// reservations, committed or expired, and two audit rows for each.
	ageSQL = `
WITH old AS MATERIALIZED (
    SELECT n, t.at, t.at + CASE WHEN n % 10 < 3 THEN interval '5 minutes' ELSE interval '15 minutes' END AS ended_at, 'cart-' || md5('c' || n) AS cart_id, n % 2 = 0 AS hot,
           CASE WHEN n % 2 = 0 THEN 'variant-0' ELSE 'variant-' || 1 + n % greatest($4::bigint - 1, 1) END AS variant_id,
           (lpad(to_hex((extract(epoch FROM t.at) * 1000)::bigint), 12, '0') || '7' || substr(md5('i' || n), 1, 3) || '8' || substr(md5('i' || n), 4, 15))::uuid AS id
    FROM generate_series($2::bigint, $3::bigint) AS n,
         LATERAL (SELECT now() - $7::interval + n * ($8::interval / $5::bigint) AS at) t
), asked AS (
    INSERT INTO reservation_requests (tenant_id, request_id, created_at, updated_at, quantity, lane, slot, status, cart_id, variant_id)
    SELECT $1, id, at, at + interval '20 milliseconds', 1, CASE WHEN hot THEN 'hot' ELSE 'normal' END,
           CASE WHEN hot THEN $6::smallint ELSE 0 END, 'done', cart_id, variant_id
    FROM old
    ORDER BY n
), held AS (
    INSERT INTO reservations (tenant_id, reservation_id, resource_kind, resource_key, holder_id, quantity, status, release_reason,
                              first_held_at, held_at, expires_at, ended_at)
    SELECT $1, id, 'inventory.variant', variant_id, cart_id, 1, CASE WHEN n % 10 < 3 THEN 'committed' ELSE 'expired' END,
           CASE WHEN n % 10 < 3 THEN NULL ELSE 'ttl' END, at, at, at + interval '15 minutes', ended_at
    FROM old
    ORDER BY n
)
INSERT INTO audit_log (tenant_id, target_id, action, actor_kind, created_at, resource_kind, resource_key, holder_id, quantity, expires_at, release_reason)
SELECT $1, id, action, CASE action WHEN 'reservation.held' THEN 'anonymous' ELSE 'job' END, CASE action WHEN 'reservation.held' THEN at ELSE ended_at END, 'inventory.variant', variant_id, cart_id, 1,
       at + interval '15 minutes', CASE action WHEN 'reservation.expired' THEN 'ttl' END
FROM old, unnest(ARRAY['reservation.held', CASE WHEN n % 10 < 3 THEN 'reservation.committed' ELSE 'reservation.expired' END]) AS action
ORDER BY n`
	ageChunk = 100_000
)

// endedMarksSQL and endedMarkSQL move the marks past the reservations that have
// ended, as the endings and the sweeps would have done meanwhile.
const (
	endedMarksSQL = `UPDATE inventory_stocks SET due_from = 'infinity' WHERE reserved = 0`
	endedMarkSQL  = `
INSERT INTO reservation_marks (resource_kind, due_from, noted_at, noted_xid)
VALUES ('inventory.variant', clock_timestamp() - interval '1 hour', clock_timestamp(), pg_current_xact_id())
ON CONFLICT (resource_kind) DO NOTHING`
)

// raisedMarksSQL moves the low-water marks, as the drains would have done
// meanwhile: a first claim past all finished rows takes longer than the timeout
// of its transaction.
const raisedMarksSQL = `UPDATE lane_slots SET low_water = (SELECT max(sequence) FROM reservation_requests)`

// soldStockSQL takes out of the stocks what the finished rows have committed.
const soldStockSQL = `
UPDATE inventory_stocks s
SET stock = s.stock - sold.units
FROM (SELECT tenant_id, resource_key, count(*) AS units FROM audit_log WHERE action = 'reservation.committed' GROUP BY tenant_id, resource_key) sold
WHERE s.tenant_id = sold.tenant_id AND s.variant_id = sold.resource_key`

// age inserts the finished rows from one number to another. All rows are spread
// over a span that began the given time ago.
func (b *bench) age(ctx context.Context, g *environment, from, to int, began, span string) error {
	if _, err := g.unbounded.Exec(ctx, ageSQL, g.tenant, from, to, b.variants, b.rows, g.slot, began, span); err != nil {
		return fmt.Errorf("fill in finished rows: %w", err)
	}
	b.progress("filled in %s finished rows", group(fmt.Sprint(to)))
	return nil
}

// settle moves the stocks and the marks as the programs would have done meanwhile,
// and vacuums.
func (g *environment) settle(ctx context.Context) error {
	for _, sql := range []string{
		soldStockSQL, `VACUUM (ANALYZE) reservation_requests, reservations, audit_log, inventory_stocks`,
		endedMarksSQL, endedMarkSQL, raisedMarksSQL,
	} {
		if _, err := g.unbounded.Exec(ctx, sql); err != nil {
			return err
		}
	}
	for range 3 {
		if _, err := g.hot.Tick(ctx); err != nil {
			return err
		}
		if _, err := g.normal.Tick(ctx); err != nil {
			return err
		}
	}
	return nil
}
