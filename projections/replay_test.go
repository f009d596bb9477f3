package projections_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/projections"
)

// rebuilding is a rebuild of the yard's projection with a pool and a feed of its
// own. It counts the records that it reads, and calls between at defined steps,
// so that the yard's feed delivers records meanwhile.
type rebuilding struct {
	*yard
	own     *projections.Feed
	between func(step string)

	mu   sync.Mutex
	read int64
}

// The steps of a rebuild: after the first page of records, after the keys of a
// part are locked, and after a part is committed.
const (
	stepPage   = "page"
	stepLocked = "locked"
	stepPart   = "part"
)

func newRebuilding(t *testing.T, y *yard, between func(step string)) *rebuilding {
	t.Helper()
	r := &rebuilding{yard: y, between: between}
	config := y.db.Config()
	config.ConnConfig.Tracer = r
	db, err := pgxpool.NewWithConfig(t.Context(), config)
	y.must(err)
	t.Cleanup(db.Close)
	runtime, err := projections.New(db, warehouses(), projections.Config{Send: r.Send, Log: quiet})
	y.must(err)
	r.own, err = projections.NewFeed(db, projections.Config{Send: r.Send, Log: quiet})
	y.must(err)
	y.must(runtime.Register(r.own))
	return r
}

func (r *rebuilding) rebuild(ctx context.Context) (int, error) {
	return r.own.RebuildFromRecord(ctx, "warehouses.totals", nil)
}

// Send is called once per part, after its commit.
func (r *rebuilding) Send(ctx context.Context, frames []projections.Frame) error {
	err := r.sent.Send(ctx, frames)
	r.between(stepPart)
	return err
}

type statement struct{}

func (r *rebuilding) TraceQueryStart(ctx context.Context, conn *pgx.Conn, query pgx.TraceQueryStartData) context.Context {
	if strings.Contains(query.SQL, "FROM audit_subscriptions") && conn.PgConn().TxStatus() == 'T' {
		r.between(stepLocked)
	}
	return context.WithValue(ctx, statement{}, query.SQL)
}

func (r *rebuilding) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, result pgx.TraceQueryEndData) {
	if sql, _ := ctx.Value(statement{}).(string); !strings.Contains(sql, "FROM audit_log") {
		return
	}
	r.mu.Lock()
	first := r.read == 0
	r.read += result.CommandTag.RowsAffected()
	r.mu.Unlock()
	if first {
		r.between(stepPage)
	}
}

// A rebuild of several parts reads each record once, although the feed delivers
// more between its parts and while it has keys locked. It ends with the states
// of the whole record, and the feed continues behind it.
func TestRebuildReadsEachRecordOnce(t *testing.T) {
	t.Parallel()
	const keys, parts, batch = 650, 4, 600
	y := newYard(t)
	config := projections.Config{Send: y.sent.Send, Log: quiet, Batch: batch, Lease: time.Minute}
	var err error
	y.feed, err = projections.NewFeed(y.db, config)
	y.must(err)
	y.must(y.runtime.Register(y.feed))
	all := make(map[string][]moved)
	record := func(warehouses ...string) {
		events := make([]moved, len(warehouses))
		for i, warehouse := range warehouses {
			events[i] = y.move(warehouse, "nail", int64(100*len(all[warehouse])+i))
			all[warehouse] = append(all[warehouse], events[i])
		}
		y.record(events...)
	}
	names := make([]string, keys)
	for i := range names {
		names[i] = fmt.Sprintf("w%03d", i)
	}
	record(names...)
	y.follow()
	steps := make(map[string]int)
	r := newRebuilding(t, y, func(step string) {
		steps[step]++
		switch {
		case step == stepLocked && steps[step] < parts: // of the last keys, which are not locked
			report, err := y.feed.RunOnce(t.Context())
			if err != nil || report.Delivered != keys-batch {
				t.Errorf("%+v is delivered while keys are locked, %v", report, err)
			}
		case step == stepPart:
			y.follow()
			record(fmt.Sprint("new", steps[step]))
			y.follow()
			record(names...)
			y.followTo(keys - batch)
		case step == stepPage:
			record(names...)
			y.followTo(keys - batch)
		}
	})
	n, err := r.rebuild(t.Context())
	if err != nil || n != keys {
		t.Errorf("%d rebuilt, %v", n, err)
	}
	if steps[stepPage] != 1 || steps[stepLocked] != parts || steps[stepPart] != parts {
		t.Errorf("the steps are %v", steps)
	}
	if most := pgtest.Int(t, y.db, `SELECT count(*) FROM audit_log`); r.read > most {
		t.Errorf("%d records read, of %d", r.read, most)
	}
	y.follow()
	for i, name := range names {
		if i%50 == 0 || i == keys-1 {
			y.want(name, int64(len(all[name]))+1, all[name]...)
		}
	}
	for part := range parts {
		name := fmt.Sprint("new", part+1)
		y.want(name, 1, all[name]...)
	}
	y.wantSum(keys*(2+parts) + parts)
}

// wantSum checks that the states together have that many events.
func (y *yard) wantSum(events int64) {
	y.t.Helper()
	if n := pgtest.Int(y.t, y.db, `SELECT sum((state->>'events')::bigint)::bigint FROM projection_snapshots`); n != events {
		y.t.Errorf("the states have %d events, want %d", n, events)
	}
}

// A rebuild that ends in the middle leaves each state as it was or rebuilt. The
// feed continues with both, and the next rebuild ends.
func TestRebuildEndsInTheMiddle(t *testing.T) {
	t.Parallel()
	const keys = 450
	y := newYard(t)
	names, events := make([]string, keys), make([]moved, keys)
	for i := range names {
		names[i] = fmt.Sprintf("w%03d", i)
		events[i] = y.move(names[i], "nail", int64(i))
	}
	y.record(events...)
	y.follow()
	ctx, cancel := context.WithCancel(t.Context())
	locked := 0
	r := newRebuilding(t, y, func(step string) {
		if step == stepLocked {
			if locked++; locked == 2 {
				cancel()
			}
		}
	})
	if n, err := r.rebuild(ctx); n != 200 || err == nil {
		t.Errorf("%d rebuilt, %v", n, err)
	}
	y.record(events...)
	y.follow()
	for i, name := range names {
		version := int64(2)
		if i < 200 {
			version++ // was rebuilt
		}
		if i%50 == 0 {
			y.want(name, version, events[i], events[i])
		}
	}
	r.between = func(string) {}
	if n, err := r.rebuild(t.Context()); n != keys || err != nil {
		t.Errorf("%d rebuilt, %v", n, err)
	}
	y.want(names[0], 4, events[0], events[0])
	y.want(names[keys-1], 3, events[keys-1], events[keys-1])
	y.wantSum(2 * keys)
}
