package main

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/holdfast/holdfast/internal/sleep"
)

const (
	pinnedReader = "pinned_hot"
	pinnedWriter = "pinned_writer_hot"
)

// pinned loads the hot lane while a transaction holds a snapshot and does
// nothing: once a transaction that has only read, and once one that also has a
// transaction id.
func (b *bench) pinned(ctx context.Context) (measures []Measure, err error) {
	for _, name := range []string{pinnedReader, pinnedWriter} {
		m, err := b.pin(ctx, name)
		if err != nil {
			return measures, err
		}
		measures = append(measures, m)
	}
	return measures, nil
}

const (
	readSQL  = `SELECT count(*) FROM lane_slots`
	writeSQL = `SELECT pg_current_xact_id()`
)

func (b *bench) pin(ctx context.Context, name string) (m Measure, err error) {
	g, err := b.newEnvironment(ctx)
	if err != nil {
		return m, err
	}
	defer g.close()
	if err := g.reset(ctx, 1, true); err != nil {
		return m, err
	}
	stop, err := g.work(ctx)
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	window := max(b.options.pinned/10, b.long)
	var before, after []float64
	var loading errgroup.Group
	var admitted sample
	enough := make(chan struct{})
	loading.Go(func() (err error) {
		admitted, err = g.submit(ctx, httpClients, 2*window+2*b.options.pinned, enough)
		return err
	})
	watched := func() error {
		if err := sleep.For(ctx, window); err != nil {
			return err
		}
		if before, err = b.watch(ctx, g, window); err != nil {
			return err
		}
		after, err = b.during(ctx, g, name, window)
		return err
	}()
	close(enough)
	if err := errors.Join(watched, loading.Wait()); err != nil {
		return m, err
	}
	if err := g.decided(ctx, admitted.count); err != nil {
		return m, err
	}
	if err := g.checkRows(ctx, admitted); err != nil {
		return m, err
	}
	other := median(before)
	m = newMeasure(name, "ratio", []float64{ratio(median(after), other)})
	m.between(median(after), other)
	m.Spread = spread(after)
	m.note("decided/s in the last %s of %s, slowest fifth of a window %.0f/s", window, b.options.pinned, slices.Min(after))
	return m, nil
}

// during keeps a transaction open while the load lasts, and measures the last
// part of it.
func (b *bench) during(ctx context.Context, g *environment, name string, window time.Duration) (rates []float64, err error) {
	db, err := openPool(ctx, g.url, 1, nil)
	if err != nil {
		return nil, err
	}
	defer db.Close()
	tx, err := db.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, tx.Rollback(ctx)) }()
	if _, err := tx.Exec(ctx, readSQL); err != nil {
		return nil, err
	}
	if name == pinnedWriter {
		if _, err := tx.Exec(ctx, writeSQL); err != nil {
			return nil, err
		}
	}
	for left := b.options.pinned - window; left > 0; left -= window {
		began := time.Now()
		rates, err := b.watch(ctx, g, min(left, window))
		if err != nil {
			return nil, err
		}
		b.progress("%-18s %.0f/s, %s to go", name, median(rates), (left - time.Since(began) + window).Round(time.Second))
	}
	return b.watch(ctx, g, window)
}

// watch is how many requests are decided per second, in five parts of a window.
func (b *bench) watch(ctx context.Context, g *environment, window time.Duration) (rates []float64, err error) {
	for range 5 {
		began := time.Now()
		first, err := reservedOf(ctx, g.db, g.tenant)
		if err != nil {
			return nil, err
		}
		if err := sleep.For(ctx, window/5); err != nil {
			return nil, err
		}
		last, err := reservedOf(ctx, g.db, g.tenant)
		if err != nil {
			return nil, err
		}
		rates = append(rates, float64(last-first)/time.Since(began).Seconds())
	}
	return rates, nil
}
