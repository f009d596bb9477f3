package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/audit"
	verbs "github.com/holdfast/holdfast/internal/carts"
	"github.com/holdfast/holdfast/internal/requestrows"
	"github.com/holdfast/holdfast/requests"
	"github.com/holdfast/holdfast/reservations"
)

const (
	// inLine is how many requests wait for the hot variant, inLineShort how many
	// in a run without warm-up.
	inLine, inLineShort = 10_000, 200
	// unitsFreed is how many units are freed, one after the other. The first
	// unitsBefore offers, while the process begins to listen, are not counted.
	unitsFreed, unitsBefore = 110, 10
	// offerWithin bounds the wait for one offer.
	offerWithin = 30 * time.Second
)

// waitlist frees units of a variant for which many requests wait, one by one. It
// measures from the commit that frees a unit until who is first in line is
// announced the offer.
func (b *bench) waitlist(ctx context.Context) ([]Measure, error) {
	g, err := b.newEnvironment(ctx)
	if err != nil {
		return nil, err
	}
	defer g.close()
	waiting := inLine
	if b.cold {
		waiting = inLineShort
	}
	var p99s []float64
	for rep := b.first(); rep <= b.reps; rep++ {
		if err := b.checkpoint(ctx); err != nil {
			return nil, err
		}
		delays, err := g.offers(ctx, waiting)
		if err != nil {
			return nil, err
		}
		delays = delays[unitsBefore:]
		slices.Sort(delays)
		p50, p99 := milliseconds(delays[len(delays)/2]), milliseconds(delays[len(delays)*99/100])
		b.progress("offer announced after %.1f ms p50, %.1f ms p99", p50, p99)
		if rep > 0 {
			p99s = append(p99s, p99)
		}
	}
	m := newMeasure("waitlist_offer_p99_ms", "ms", p99s)
	m.note("%d in line, %d units freed one by one", waiting, unitsFreed-unitsBefore)
	return []Measure{m}, nil
}

const (
	fillLineSQL = `
INSERT INTO reservation_requests (tenant_id, request_id, kind, cart_id, variant_id, quantity, lane, slot)
SELECT $1, gen_random_uuid(), CASE WHEN n <= $4 THEN 'add' ELSE 'wait' END, 'cart-' || n, $2, 1, 'hot', $3
FROM generate_series(1, $4 + $5::integer) AS n
ORDER BY n`

	firstInLineSQL = `SELECT request_id FROM waiting_requests WHERE tenant_id = $1 AND variant_id = $2 ORDER BY place LIMIT 1`
)

// offers fills the line, and returns the delay of each offer.
func (g *environment) offers(ctx context.Context, waiting int) (delays []time.Duration, err error) {
	if err := g.reset(ctx, 1, true); err != nil {
		return nil, err
	}
	fill := &pgx.Batch{}
	fill.Queue(`UPDATE inventory_stocks SET stock = $1`, unitsFreed)
	fill.Queue(enterSQL)
	fill.Queue(fillLineSQL, g.tenant, hotVariant, g.slot, unitsFreed, waiting)
	if err := g.db.SendBatch(ctx, fill).Close(); err != nil {
		return nil, fmt.Errorf("fill the line: %w", err)
	}
	stop, err := g.work(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	err = await(ctx, time.Minute, 20*time.Millisecond, func() (missing string, err error) {
		var n int
		if err := g.db.QueryRow(ctx, `SELECT count(*) FROM waiting_requests`).Scan(&n); err != nil || n == waiting {
			return "", err
		}
		return fmt.Sprintf("%d wait in line, want %d", n, waiting), nil
	})
	if err != nil {
		return nil, err
	}
	running, end := context.WithCancel(ctx)
	watcher, ended := requestrows.NewWatcher(g.db, slog.New(slog.DiscardHandler)), make(chan error, 1)
	go func() { ended <- watcher.Run(running) }()
	defer func() {
		end()
		err = errors.Join(err, <-ended)
	}()
	for i := range unitsFreed {
		delay, err := g.offer(ctx, watcher, fmt.Sprint("cart-", i+1))
		if err != nil {
			return nil, err
		}
		delays = append(delays, delay)
	}
	return delays, nil
}

// offer frees the unit of a cart, and returns how long it takes until the first in
// line knows that it is offered to them.
func (g *environment) offer(ctx context.Context, watcher *requestrows.Watcher, cart string) (time.Duration, error) {
	var first uuid.UUID
	if err := g.db.QueryRow(ctx, firstInLineSQL, g.tenant, hotVariant).Scan(&first); err != nil {
		return 0, fmt.Errorf("read who is first in line: %w", err)
	}
	type answer struct {
		view requests.View
		at   time.Time
		err  error
	}
	announced := make(chan answer, 1)
	go func() {
		view, err := watcher.Wait(ctx, g.tenant, first, offerWithin, requests.Status.Finished)
		announced <- answer{view, time.Now(), err}
	}()
	if _, err := verbs.Remove(ctx, g.db, g.tenant, cart, hotVariant, reservations.CartRemoved, audit.Origin{}); err != nil {
		return 0, err
	}
	freed := time.Now()
	a := <-announced
	switch {
	case a.err != nil:
		return 0, a.err
	case a.view.Reservation == nil:
		return 0, fmt.Errorf("the first in line is %s, and was offered nothing", a.view.Status)
	}
	return max(a.at.Sub(freed), 0), nil
}
