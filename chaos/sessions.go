package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/chaos/check"
	"github.com/holdfast/holdfast/internal/chaos/stage"
	"github.com/holdfast/holdfast/internal/chaos/traffic"
	"github.com/holdfast/holdfast/internal/pg"
	"github.com/holdfast/holdfast/internal/sleep"
)

const endSessionsSQL = `
SELECT pg_terminate_backend(pid)
FROM pg_stat_activity
WHERE application_name LIKE 'holdfast-%' AND pid <> pg_backend_pid()`

const anySessionSQL = `
SELECT pid
FROM pg_stat_activity
WHERE application_name LIKE 'holdfast-%' AND pid <> pg_backend_pid()
ORDER BY (state = 'active') DESC, random()
LIMIT 1`

const anyStockSQL = `
SELECT tenant_id, variant_id
FROM inventory_stocks
WHERE variant_id = $1
ORDER BY random()
LIMIT 1
FOR UPDATE`

// killBackend kills the server process of one session of the programs, if
// possible one that runs a statement.
func (b *injector) killBackend(ctx context.Context) error {
	var pid int
	err := b.db().QueryRow(ctx, anySessionSQL).Scan(&pid)
	switch {
	case err == nil:
		return b.postgres.KillProcess(pid)
	case errors.Is(err, pgx.ErrNoRows): // all programs have just lost their sessions
		return nil
	}
	return ignoreOutage(err)
}

// lockStock keeps a variant locked, as a console session with an open
// transaction does.
func (b *injector) lockStock(ctx context.Context, f stage.Fault) error {
	variant := []string{"sale", "mover", "shirt 1", "ordered"}[int(f.At.Milliseconds())%4]
	return b.keepLocked(ctx, f, map[string]any{anyStockSQL: variant})
}

// How many rows a lockRows locks.
const (
	lockedStocks = 12
	lockedHolds  = 20
)

// FOR UPDATE SKIP LOCKED, so that the session waits for no other one, which
// could deadlock.
const (
	someStocksSQL = `
SELECT tenant_id, variant_id
FROM inventory_stocks
WHERE tracked
ORDER BY random()
LIMIT $1
FOR UPDATE SKIP LOCKED`

	someHoldsSQL = `
SELECT tenant_id, resource_key
FROM reservations
WHERE resource_kind = 'inventory.variant' AND status = 'held'
ORDER BY random()
LIMIT $1
FOR UPDATE SKIP LOCKED`
)

// lockRows keeps stocks and holds locked, due holds among them.
func (b *injector) lockRows(ctx context.Context, f stage.Fault) error {
	return b.keepLocked(ctx, f, map[string]any{someStocksSQL: lockedStocks, someHoldsSQL: lockedHolds})
}

// keepLocked runs statements with their argument, each of which locks rows and
// returns their variants, and keeps the locks while the fault lasts.
func (b *injector) keepLocked(ctx context.Context, f stage.Fault, statements map[string]any) error {
	began := time.Now() // the server runs on this machine
	locked := make(map[traffic.StockRef]bool)
	err := pgx.BeginFunc(ctx, b.db(), func(tx pgx.Tx) error {
		for sql, argument := range statements {
			rows, _ := tx.Query(ctx, sql, argument)
			refs, err := pgx.CollectRows(rows, pgx.RowToStructByPos[traffic.StockRef])
			if err != nil {
				return err
			}
			for _, ref := range refs {
				locked[ref] = true
			}
		}
		return sleep.For(ctx, f.For)
	})
	b.mu.Lock()
	defer b.mu.Unlock()
	for ref := range locked {
		b.locks = append(b.locks, check.Lock{StockRef: ref, From: began, Until: time.Now()})
	}
	return ignoreOutage(err)
}

const (
	sweepsAtOnce = 3
	sweepTimeout = 40 * time.Second
)

// sweep runs several sweeps at once. A sweep that fails although no fault was
// active is a finding.
func (b *injector) sweep(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, b.timeout(sweepTimeout))
	defer cancel()
	began := time.Now()
	var all sync.WaitGroup
	for range sweepsAtOnce {
		all.Go(func() {
			out, err := b.oneshot(ctx, newVersion, "sweep")
			if err != nil && !b.disturbed(began) {
				b.findings.Add(ruleSweep, "%v: %s", err, out)
			}
		})
	}
	all.Wait()
	return nil
}

// disturbed reports whether Postgres had a fault since the given moment, or
// shortly before it.
func (b *injector) disturbed(since time.Time) bool {
	for _, w := range b.line.Windows() {
		over := !w.End.IsZero() && w.End.Add(5*time.Second).Before(since)
		if !over && (w.Kind.OnServer() || w.Kind.OnRows() || w.Kind == stage.Freeze) {
			return true
		}
	}
	return false
}

// ignoreOutage returns the error, or nil if Postgres was down because of
// another fault.
func ignoreOutage(err error) error {
	if pg.IsOutage(err) || pg.IsRetryable(err) || pg.Code(err) == "57P01" {
		return nil
	}
	return err
}

// recoveryMax is how long Postgres may take to accept connections again.
const recoveryMax = time.Minute

// accepting waits until Postgres accepts connections.
func (b *injector) accepting(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, b.timeout(recoveryMax))
	defer cancel()
	for {
		err := b.db().Ping(ctx)
		if err == nil {
			return nil
		}
		if sleep.For(ctx, 20*time.Millisecond) != nil {
			return fmt.Errorf("connect to Postgres: %w", err)
		}
	}
}
