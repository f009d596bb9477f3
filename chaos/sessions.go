package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/chaos/fault"
	"github.com/holdfast/holdfast/internal/pgerr"
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
SELECT variant_id
FROM inventory_stocks
WHERE variant_id = $1
ORDER BY random()
LIMIT 1
FOR UPDATE`

// killBackend ends the process of some session of the programs, one that is at work if there is any.
func (b *breaker) killBackend(ctx context.Context) error {
	var pid int
	err := b.db.QueryRow(ctx, anySessionSQL).Scan(&pid)
	switch {
	case err == nil:
		return b.postgres.KillProcess(pid)
	case errors.Is(err, pgx.ErrNoRows): // all programs have just lost theirs
		return nil
	}
	return ignoreOutage(err)
}

// lockStock keeps one variant of each sort locked, as a console session does that is never committed.
func (b *breaker) lockStock(ctx context.Context, f fault.Fault) error {
	variant := []string{"sale", "mover", "shirt 1", "line"}[int(f.At.Milliseconds())%4]
	err := pgx.BeginFunc(ctx, b.db, func(tx pgx.Tx) error {
		var locked string
		if err := tx.QueryRow(ctx, anyStockSQL, variant).Scan(&locked); err != nil {
			return err
		}
		return wait(ctx, f.For)
	})
	return ignoreOutage(err)
}

const (
	sweepsAtOnce = 3
	sweepTimeout = 40 * time.Second
)

// sweep runs several sweeps at once. One that fails although nothing was broken meanwhile is a finding.
func (b *breaker) sweep(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, b.patient(sweepTimeout))
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

// disturbed reports whether Postgres was broken since a moment, or shortly before.
func (b *breaker) disturbed(since time.Time) bool {
	for _, w := range b.line.Windows() {
		over := !w.End.IsZero() && w.End.Add(5*time.Second).Before(since)
		if !over && (w.Kind.OnServer() || w.Kind == fault.LockStock || w.Kind == fault.Freeze) {
			return true
		}
	}
	return false
}

// ignoreOutage is the error unless Postgres was down, which another fault may have done.
func ignoreOutage(err error) error {
	if pgerr.IsOutage(err) || pgerr.IsRetryable(err) || pgerr.Code(err) == "57P01" {
		return nil
	}
	return err
}

// recoveryMax is how long Postgres may take to accept connections again.
const recoveryMax = time.Minute

// accepting waits until Postgres accepts connections.
func (b *breaker) accepting(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, b.patient(recoveryMax))
	defer cancel()
	for {
		err := b.db.Ping(ctx)
		if err == nil {
			return nil
		}
		if wait(ctx, 20*time.Millisecond) != nil {
			return fmt.Errorf("connect to Postgres: %w", err)
		}
	}
}
