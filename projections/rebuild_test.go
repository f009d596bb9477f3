package projections_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/projections"
)

func isBroadcastError(err error) bool { return errors.Is(err, projections.ErrBroadcast) }

// isDatabaseError reports whether it is none of the package's kinds.
func isDatabaseError(err error) bool {
	own, ok := errors.AsType[*projections.Error](err)
	return ok && own.Kind == nil
}

// A failed broadcast does not stop a rebuild of several parts, and is not
// reported as an error of the database.
func TestRebuildWithoutBroadcast(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	const keys = 250 // more than one part
	events := make([]moved, keys)
	for i := range events {
		events[i] = y.move(fmt.Sprint("w", i), "nail", 1)
	}
	y.record(events...)
	y.follow()
	y.sent.broken = true
	n, err := y.feed.RebuildFromRecord(t.Context(), "warehouses.totals", nil)
	if n != keys || !isBroadcastError(err) || isDatabaseError(err) {
		t.Errorf("%d rebuilt, %v", n, err)
	}
	if n := pgtest.Int(t, y.db, `SELECT count(*) FROM projection_snapshots WHERE version = 2`); n != keys {
		t.Errorf("%d states have the next version", n)
	}
}

// A rebuild deletes a state only if there are no events. If all are refused, it
// keeps the state and returns the failure.
func TestRebuildKeepsWhatItCannotFold(t *testing.T) {
	t.Parallel()
	broken := false
	y := newYard(t, func(p *projections.Projection[moved, totals, total]) {
		apply := p.Apply
		p.Apply = func(s *totals, m moved) total {
			if broken && m.Warehouse == "a" {
				panic("a broken release")
			}
			return apply(s, m)
		}
	})
	a, b := y.move("a", "nail", 5), y.move("b", "nail", 7)
	y.record(a, b)
	y.follow()
	broken = true
	_, err := y.runtime.Rebuild(t.Context(), y.key("a"), slices.Values([]moved{a}), 0)
	if !errors.Is(err, projections.ErrApply) {
		t.Errorf("Rebuild: %v", err)
	}
	n, err := y.feed.RebuildFromRecord(t.Context(), "warehouses.totals", nil)
	if n != 1 || !errors.Is(err, projections.ErrApply) {
		t.Errorf("RebuildFromRecord: %d, %v", n, err)
	}
	y.want("a", 1, a)
	y.want("b", 2, b)

	// A record that cannot be decoded may be one of any key.
	broken = false
	pgtest.Exec(t, y.db, `INSERT INTO audit_log (tenant_id, target_id, action, actor_kind, after) VALUES ($1, $1, $2, 'system', '[]')`, y.tenant, actionMoved)
	pgtest.Exec(t, y.db, `DELETE FROM audit_log WHERE after->>'warehouse' = 'b'`)
	y.follow()
	if n, err := y.feed.RebuildFromRecord(t.Context(), "warehouses.totals", nil); n != 1 || err == nil {
		t.Errorf("with an invalid record: %d, %v", n, err)
	}
	y.want("a", 2, a)
	y.want("b", 2, b)
}

// A rebuild ends with its context, however many events there are.
func TestRebuildEnds(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.must(y.runtime.ApplyEvent(t.Context(), y.move("a", "nail", 5)))
	ctx, cancel := context.WithCancel(t.Context())
	endless := func(yield func(moved) bool) {
		for n := 0; yield(y.move("a", "nail", 1)); n++ {
			if n == 10 {
				cancel()
			}
		}
	}
	if _, err := y.runtime.Rebuild(ctx, y.key("a"), endless, 0); !errors.Is(err, context.Canceled) {
		t.Errorf("the error is %v", err)
	}
	y.want("a", 1, y.move("a", "nail", 5))
}

// A feed whose position is past the beginning warns of a projection without
// states, which may be new, and names the command.
func TestFeedWarnsOfNewProjection(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.record(y.move("a", "nail", 5))
	y.follow()
	p := warehouses()
	p.Name = "warehouses.added"
	var log pgtest.Log
	config := projections.Config{Send: y.sent.Send, Log: slog.New(slog.NewTextHandler(&log, nil))}
	added, err := projections.New(y.db, p, config)
	y.must(err)
	feed, err := projections.NewFeed(y.db, config)
	y.must(err)
	y.must(y.runtime.Register(feed))
	y.must(added.Register(feed))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- feed.Run(ctx) }()
	pgtest.Until(t, "the feed warns", func() bool {
		return strings.Contains(log.String(), "holdfast projections rebuild warehouses.added")
	})
	cancel()
	y.must(<-ended)
	if text := log.String(); strings.Contains(text, "warehouses.totals") {
		t.Error(text)
	}
}

// The feed locks the keys of a delivery in the documented order, also when it
// folds them one by one: it cannot deadlock with a caller that does so, too.
func TestFeedLocksInOrder(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	pgtest.Exec(t, y.db, `ALTER TABLE projection_snapshots ADD CHECK (key <> '!refused')`)
	y.record(y.move("b", "nail", 1), y.move("a", "nail", 1), y.move("B", "nail", 1), y.move("!refused", "nail", 1))
	// The open transaction below holds later deliveries back, so this one fails.
	pgtest.Exec(t, y.db, `ALTER TABLE projection_snapshots RENAME TO away`)
	pgtest.Until(t, "a delivery fails", func() bool {
		_, err := y.feed.RunOnce(t.Context())
		return err != nil
	})
	pgtest.Exec(t, y.db, `ALTER TABLE away RENAME TO projection_snapshots`)
	tx, err := y.db.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
	y.must(err)
	defer func() { _ = tx.Rollback(t.Context()) }()
	warehouses := []string{"B", "a", "b"}
	_, err = y.runtime.ApplyEventTx(t.Context(), tx, y.move(warehouses[0], "nail", 1))
	y.must(err)
	fed := make(chan error, 1)
	go func() {
		_, err := y.feed.RunOnce(t.Context())
		fed <- err
	}()
	pgtest.UntilBlocked(t, y.db, 1)
	for _, warehouse := range warehouses[1:] {
		_, err = y.runtime.ApplyEventTx(t.Context(), tx, y.move(warehouse, "nail", 1))
		y.must(err)
	}
	y.must(tx.Commit(t.Context()))
	y.must(<-fed)
	y.follow()
	for _, warehouse := range warehouses {
		y.want(warehouse, 2, y.move(warehouse, "nail", 1), y.move(warehouse, "nail", 1))
	}
}
