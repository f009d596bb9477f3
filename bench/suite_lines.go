package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/holdfast/holdfast/bench/baselines"
	"github.com/holdfast/holdfast/internal/requestrows"
	"github.com/holdfast/holdfast/requests"
)

const (
	linesName     = "holdfast, five lines in a request"
	linesSyncName = "synchronous, five lines in a transaction"
	// linesOfCart is how many lines a cart has, and linesVariants of how many
	// variants they are.
	linesOfCart   = 5
	linesVariants = 1000
	linesCallers  = 64
)

// lines has 64 callers that fill a cart with a unit of five variants, all or
// none. It counts carts over admission and drain together.
func (b *bench) lines(ctx context.Context) ([]Measure, error) {
	g, err := b.newEnvironment(ctx)
	if err != nil {
		return nil, err
	}
	defer g.close()
	synchronous, err := b.linesSync(ctx, g)
	if err != nil {
		return nil, err
	}
	c, err := b.compare(ctx, b.linesOf(g), synchronous)
	if err != nil {
		return nil, err
	}
	return []Measure{c.over("lines_vs_sync", linesName, linesSyncName)}, nil
}

// fiveVariants draws the variants of a cart, in the order of their ids.
func fiveVariants() []string {
	var drawn []string
	for len(drawn) < linesOfCart {
		if id := baselines.VariantID(rand.IntN(linesVariants)); !slices.Contains(drawn, id) { //nolint:gosec // no secret
			drawn = append(drawn, id)
		}
	}
	slices.Sort(drawn)
	return drawn
}

func (b *bench) linesOf(g *environment) *contender {
	return &contender{
		name:    linesName,
		prepare: func(ctx context.Context) error { return g.reset(ctx, linesVariants, false) },
		run: func(ctx context.Context, long time.Duration) (s sample, err error) {
			stop, err := g.work(ctx)
			if err != nil {
				return s, err
			}
			defer func() { err = errors.Join(err, stop()) }()
			began := time.Now()
			admitted, err := g.submitAll(ctx, linesCallers, long, nil, func() requestrows.Submission {
				lines := &requests.Lines{}
				for _, id := range fiveVariants() {
					lines.Items = append(lines.Items, requests.Line{VariantID: id, Quantity: 1})
				}
				return requestrows.Submission{TenantID: g.tenant, Kind: requests.Several, CartID: cartID(), Lines: lines}
			})
			if err != nil {
				return s, err
			}
			err = await(ctx, time.Minute, 20*time.Millisecond, func() (missing string, err error) {
				var reserved int64
				if err := g.db.QueryRow(ctx, allReservedSQL, g.tenant).Scan(&reserved); err != nil || reserved == linesOfCart*admitted.count {
					return "", err
				}
				return fmt.Sprintf("%d units are reserved, want %d", reserved, linesOfCart*admitted.count), nil
			})
			return sample{count: admitted.count, elapsed: time.Since(began)}, err
		},
		check: g.checkLines,
	}
}

const countLinesSQL = `
SELECT (SELECT count(*) FROM reservation_requests WHERE kind = 'lines' AND status = 'done'),
       (SELECT count(*) FROM reservations WHERE status = 'held'),
       (SELECT sum(reserved)::bigint FROM inventory_stocks)`

// checkLines fails unless each cart holds all its lines.
func (g *environment) checkLines(ctx context.Context, s sample) error {
	var done, holds, reserved int64
	err := g.db.QueryRow(ctx, countLinesSQL).Scan(&done, &holds, &reserved)
	if want := linesOfCart * s.count; err == nil && (done != s.count || holds != want || reserved != want) {
		err = fmt.Errorf("%d carts were filled; %d requests are done, with %d holds and %d units", s.count, done, holds, reserved)
	}
	return err
}

// linesSync is what a good engineer would write.
func (b *bench) linesSync(ctx context.Context, g *environment) (*contender, error) {
	db, err := g.open(ctx, 16)
	if err != nil {
		return nil, err
	}
	statements := &baselines.Lines{DB: db}
	return &contender{
		name: linesSyncName, what: "a statement for each line, 16 connections",
		prepare: func(ctx context.Context) error {
			return baselines.Prepare(ctx, g.db, baselines.Shop{TenantID: g.tenant, Variants: linesVariants, Stock: plenty})
		},
		run: func(ctx context.Context, long time.Duration) (sample, error) {
			return callers(ctx, linesCallers, long, func(ctx context.Context, _ int) error {
				cart := cartID()
				lines := make([]baselines.Request, 0, linesOfCart)
				for _, id := range fiveVariants() {
					lines = append(lines, baselines.Request{TenantID: g.tenant, HoldID: newID(), CartID: cart, VariantID: id, Quantity: 1})
				}
				return statements.Hold(ctx, lines)
			})
		},
		check: func(ctx context.Context, s sample) error { return baselines.Check(ctx, g.db, linesOfCart*s.count) },
	}, nil
}
