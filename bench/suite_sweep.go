package main

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfast/holdfast/bench/baselines"
	"github.com/holdfast/holdfast/internal/inventory"
)

const (
	sweepName  = "holdfast sweep"
	row1Name   = "row by row, 1 connection"
	tripName   = "row in one round trip"
	row8Name   = "the same, 8 connections"
	sweepBatch = 500 // SWEEP_BATCH
	// sweepVariants is how many variants have due holds.
	sweepVariants = 100
)

// sweep expires due holds of many variants.
func (b *bench) sweep(ctx context.Context) ([]Measure, error) {
	g, err := b.newEnvironment(ctx)
	if err != nil {
		return nil, err
	}
	defer g.close()
	contenders := []*contender{b.sweepContender(g, sweepName, true)}
	for _, r := range []struct {
		name      string
		parallel  int
		pipelined bool
	}{{row1Name, 1, false}, {tripName, 1, true}, {row8Name, 8, true}} {
		s, err := b.expireRows(ctx, g, r.name, r.parallel, r.pipelined)
		if err != nil {
			return nil, err
		}
		contenders = append(contenders, s)
	}
	c, err := b.compare(ctx, contenders...)
	if err != nil {
		return nil, err
	}
	m := c.over("sweep_vs_rows", sweepName, row1Name)
	m.note("a sweep uses 2 connections; %s: %.0f/s, %s: %.0f/s", tripName, median(c[tripName].rates()), row8Name, median(c[row8Name].rates()))
	return []Measure{m}, nil
}

const (
	fillDueSQL = `
WITH due AS (
    INSERT INTO reservations (tenant_id, reservation_id, resource_kind, resource_key, holder_id, quantity, first_held_at, held_at, expires_at)
    SELECT s.tenant_id, gen_random_uuid(), 'inventory.variant', s.variant_id, 'cart-' || n, 1,
           now() - interval '1 hour', now() - interval '1 hour', now() - interval '45 minutes' - random() * interval '10 minutes'
    FROM generate_series(1, $2::bigint) AS n, inventory_stocks s
    WHERE s.tenant_id = $1 AND s.variant_id IN (SELECT 'variant-' || v FROM generate_series(0, $3::bigint - 1) AS v)
    RETURNING tenant_id, resource_key, quantity
)
UPDATE inventory_stocks s
SET reserved = s.reserved + d.quantity
FROM (SELECT tenant_id, resource_key, sum(quantity) AS quantity FROM due GROUP BY tenant_id, resource_key) d
WHERE s.tenant_id = d.tenant_id AND s.variant_id = d.resource_key`
	countExpiredSQL = `
SELECT (SELECT count(*) FROM reservations WHERE tenant_id = $1 AND status = 'expired'),
       (SELECT count(*) FROM audit_log WHERE tenant_id = $1 AND action = 'reservation.expired'),
       (SELECT coalesce(sum(reserved), 0)::bigint FROM inventory_stocks WHERE tenant_id = $1),
       (SELECT count(*) FROM reservations WHERE tenant_id = $1 AND status = 'held')`
)

// expiredRows counts the rows; reserved is the sum of the counters.
type expiredRows struct{ expired, audited, reserved, held int64 }

func (g *environment) countExpired(ctx context.Context) (r expiredRows, err error) {
	err = g.unbounded.QueryRow(ctx, countExpiredSQL, g.tenant).Scan(&r.expired, &r.audited, &r.reserved, &r.held)
	return r, err
}

// fillDue inserts due holds, the same number for each variant, and gathers the
// statistics that autovacuum would have gathered.
func (g *environment) fillDue(ctx context.Context, each int) error {
	for _, sql := range []string{
		`UPDATE reservation_marks SET due_from = least(due_from, now() - interval '1 hour')`,
		`UPDATE inventory_stocks SET due_from = least(due_from, now() - interval '1 hour')`,
	} {
		if _, err := g.db.Exec(ctx, sql); err != nil {
			return fmt.Errorf("move the marks back: %w", err)
		}
	}
	if _, err := g.db.Exec(ctx, fillDueSQL, g.tenant, each, sweepVariants); err != nil {
		return fmt.Errorf("fill in due holds: %w", err)
	}
	_, err := g.db.Exec(ctx, `ANALYZE reservations, inventory_stocks`)
	return err
}

// sweepContender runs the sweeper's batch until nothing is due. If afresh is
// true, it begins with empty tables.
func (b *bench) sweepContender(g *environment, name string, afresh bool) *contender {
	var before expiredRows
	return &contender{
		name: name,
		prepare: func(ctx context.Context) (err error) {
			if afresh {
				if err := g.reset(ctx, sweepVariants, false); err != nil {
					return err
				}
			}
			if before, err = g.countExpired(ctx); err != nil {
				return err
			}
			return g.fillDue(ctx, b.work(name, b.long)/sweepVariants+1)
		},
		run: func(ctx context.Context, _ time.Duration) (s sample, err error) {
			began := time.Now()
			for pass := inventory.NewExpiry(g.db); ; {
				swept, err := pass.Next(ctx, sweepBatch)
				if err != nil {
					return s, err
				}
				s.count += int64(swept.Expired)
				if swept.Found < sweepBatch {
					break
				}
			}
			s.elapsed = time.Since(began)
			b.note(name, s)
			return s, nil
		},
		check: func(ctx context.Context, s sample) error {
			after, err := g.countExpired(ctx)
			want := expiredRows{before.expired + s.count, before.audited + s.count, before.held, before.held}
			if err == nil && after != want {
				err = fmt.Errorf("the rows do not add up: %+v, want %+v", after, want)
			}
			return err
		},
	}
}

// expireRows is one transaction per hold, one after the other or several at one
// time.
func (b *bench) expireRows(ctx context.Context, g *environment, name string, parallel int, pipelined bool) (*contender, error) {
	db, err := g.open(ctx, parallel)
	if err != nil {
		return nil, err
	}
	job := baselines.ExpireRows{DB: db, Parallel: parallel, Pipelined: pipelined}
	return &contender{
		name: name,
		prepare: func(ctx context.Context) error {
			if err := baselines.Prepare(ctx, g.db, baselines.Shop{TenantID: g.tenant, Variants: sweepVariants, Stock: plenty}); err != nil {
				return err
			}
			return job.Fill(ctx, b.work(name, b.long)/sweepVariants+1)
		},
		run: func(ctx context.Context, _ time.Duration) (s sample, err error) {
			began := time.Now()
			for {
				ended, err := job.RunOnce(ctx, sweepBatch)
				if err != nil {
					return s, err
				}
				s.count += int64(ended)
				if ended < sweepBatch {
					break
				}
			}
			s.elapsed = time.Since(began)
			b.note(name, s)
			return s, nil
		},
		check: func(ctx context.Context, s sample) error { return job.CheckExpired(ctx, s.count) },
	}, nil
}
