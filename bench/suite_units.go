package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast/holdfast/bench/baselines"
	"github.com/holdfast/holdfast/internal/requestrows"
)

const (
	unitsName      = "holdfast, any four units of a block"
	unitsNaiveName = "skip locked, any four units"
	// party is how many units a caller wants.
	party        = 4
	unitsCallers = 64
)

// units has 64 callers that want any four units of one block each. It counts
// holds over admission and drain together.
func (b *bench) units(ctx context.Context) ([]Measure, error) {
	g, err := b.newEnvironment(ctx)
	if err != nil {
		return nil, err
	}
	defer g.close()
	naive, err := b.seats(ctx, g)
	if err != nil {
		return nil, err
	}
	c, err := b.compare(ctx, b.unitsOf(g), naive)
	if err != nil {
		return nil, err
	}
	return []Measure{c.over("units_vs_naive", unitsName, unitsNaiveName)}, nil
}

const (
	toBlockSQL = `UPDATE inventory_stocks SET named_units = true, stock = $2, units = $2, last_position = $2 WHERE tenant_id = $1`
	fillSQL    = `
INSERT INTO postings (tenant_id, block, unit_id, position)
SELECT $1, $2, 'unit-' || n, n
FROM generate_series(1, $3::bigint) AS n`
)

// toBlock makes the hot variant a block of n units.
func (g *environment) toBlock(ctx context.Context, n int) error {
	if _, err := g.db.Exec(ctx, toBlockSQL, g.tenant, n); err != nil {
		return fmt.Errorf("make a block: %w", err)
	}
	if _, err := g.db.Exec(ctx, fillSQL, g.tenant, hotVariant, n); err != nil {
		return fmt.Errorf("make %d units: %w", n, err)
	}
	_, err := g.db.Exec(ctx, `VACUUM (ANALYZE) postings`)
	return err
}

func (b *bench) unitsOf(g *environment) *contender {
	return &contender{
		name: unitsName,
		prepare: func(ctx context.Context) error {
			if err := g.reset(ctx, 1, true); err != nil {
				return err
			}
			return g.toBlock(ctx, 6*party*b.work(unitsName, b.long))
		},
		run: func(ctx context.Context, long time.Duration) (s sample, err error) {
			stop, err := g.work(ctx)
			if err != nil {
				return s, err
			}
			defer func() { err = errors.Join(err, stop()) }()
			began := time.Now()
			admitted, err := g.submitAll(ctx, unitsCallers, long, nil, func() requestrows.Submission {
				return requestrows.Submission{TenantID: g.tenant, CartID: cartID(), VariantID: hotVariant, Quantity: party}
			})
			if err != nil {
				return s, err
			}
			if err := g.decided(ctx, party*admitted.count); err != nil {
				return s, err
			}
			s = sample{count: admitted.count, elapsed: time.Since(began)}
			b.note(unitsName, s)
			return s, nil
		},
		check: g.checkUnits,
	}
}

const countUnitsSQL = `
SELECT (SELECT count(*) FROM reservations WHERE status = 'held' AND quantity = 4 AND jsonb_array_length(unit_ids) = 4),
       (SELECT count(*) FROM postings WHERE status = 'pending_inactive') / 4,
       (SELECT count(*) FROM (SELECT FROM postings WHERE status = 'pending_inactive' GROUP BY reservation_id HAVING count(*) = 4) whole),
       (SELECT sum(reserved)::bigint / 4 FROM inventory_stocks)`

// checkUnits fails unless each hold owns four units, and nothing else owns one.
func (g *environment) checkUnits(ctx context.Context, s sample) error {
	var holds, units, whole, reserved int64
	err := g.db.QueryRow(ctx, countUnitsSQL).Scan(&holds, &units, &whole, &reserved)
	if err == nil && (holds != s.count || units != s.count || whole != s.count || reserved != s.count) {
		err = fmt.Errorf("%d holds were made; %d are in the table, with the units of %d, %d of them with all four, and %d are counted",
			s.count, holds, units, whole, reserved)
	}
	return err
}

// seats is what a good engineer would write.
func (b *bench) seats(ctx context.Context, g *environment) (*contender, error) {
	db, err := g.open(ctx, 16)
	if err != nil {
		return nil, err
	}
	seats := &baselines.Seats{DB: db}
	return &contender{
		name: unitsNaiveName, what: "SELECT … FOR UPDATE SKIP LOCKED, 16 connections",
		prepare: func(ctx context.Context) error {
			stock := int64(6 * party * b.work(unitsNaiveName, b.long))
			return baselines.Prepare(ctx, g.db, baselines.Shop{TenantID: g.tenant, Variants: 1, Stock: stock, Units: true})
		},
		run: func(ctx context.Context, long time.Duration) (sample, error) {
			s, err := callers(ctx, unitsCallers, long, func(ctx context.Context, _ int) error {
				return seats.Hold(ctx, baselines.Request{
					TenantID: g.tenant, HoldID: newID(), CartID: cartID(), VariantID: baselines.VariantID(0), Quantity: party,
				})
			})
			b.note(unitsNaiveName, s)
			return s, err
		},
		check: func(ctx context.Context, s sample) error { return baselines.CheckSeats(ctx, g.db, s.count, party) },
	}, nil
}
