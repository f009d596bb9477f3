package projections_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/projections"
)

// The environment of a process of TestProcessesAreKilled.
const (
	factoryURL    = "PROJECTIONS_TEST_URL"
	factoryTenant = "PROJECTIONS_TEST_TENANT"
)

const (
	actionApplied = "units.applied"
	factoryKeys   = 50
	feedRun       = 25 // events of one transaction, for the feed
	applyRun      = 5  // events of one transaction, each by ApplyEventTx
)

// applied is a projection whose events are applied by ApplyEventTx in the
// transactions that record them.
func applied() projections.Projection[moved, totals, total] {
	p := warehouses()
	p.Name = "warehouses.applied"
	p.Source = &projections.Source[moved]{Decode: func(r *audit.Record) (moved, bool) {
		if r.Action != actionApplied {
			return moved{}, false
		}
		again := *r
		again.Action = actionMoved
		return decodeMoved(&again)
	}}
	return p
}

// TestFactory is a process of TestProcessesAreKilled: it records events, applies
// events and runs the feed until its standard input ends. It does nothing if run
// alone.
func TestFactory(t *testing.T) { //nolint:paralleltest // a separate program
	address := os.Getenv(factoryURL)
	if address == "" {
		return
	}
	db, err := pgxpool.New(t.Context(), address)
	pgtest.Must(t, err)
	defer db.Close()
	config := projections.Config{Log: slog.New(slog.DiscardHandler)}
	followed, err := projections.New(db, warehouses(), config)
	pgtest.Must(t, err)
	manual, err := projections.New(db, applied(), config)
	pgtest.Must(t, err)
	feed, err := projections.NewFeed(db, config)
	pgtest.Must(t, err)
	pgtest.Must(t, followed.Register(feed))
	y := &yard{t: t, db: db, tenant: uuid.MustParse(os.Getenv(factoryTenant)), runtime: manual}

	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var running sync.WaitGroup
	for _, work := range []func(context.Context) error{feed.Run, y.produce, y.produce} {
		running.Go(func() {
			if err := work(ctx); err != nil && ctx.Err() == nil {
				t.Error(err)
			}
		})
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
	stop()
	running.Wait()
}

func (y *yard) random() moved {
	return y.move(fmt.Sprint("w", rand.IntN(factoryKeys)), "nail", rand.Int64N(1000))
}

// produce records events for the feed and applies as many others, until ctx
// ends. Some of them are about a hot key.
func (y *yard) produce(ctx context.Context) error {
	for ctx.Err() == nil {
		events := make([]moved, feedRun)
		for i := range events {
			if events[i] = y.random(); i%5 == 0 {
				events[i].Warehouse = "w0"
			}
		}
		if err := pgx.BeginFunc(ctx, y.db, func(tx pgx.Tx) error { return recordTx(tx, events...) }); err != nil {
			return err
		}
		for range feedRun / applyRun {
			if err := y.apply(ctx, y.random()); err != nil {
				return err
			}
		}
	}
	return nil
}

// apply applies events of one key and records them under the key's lock, in one
// transaction.
func (y *yard) apply(ctx context.Context, event moved) error {
	changes := make([]projections.Change, applyRun)
	err := pgx.BeginFunc(ctx, y.db, func(tx pgx.Tx) error {
		for i := range changes {
			event.Units = rand.Int64N(1000)
			var err error
			if changes[i], err = y.runtime.ApplyEventTx(ctx, tx, event); err != nil {
				return err
			}
			if err := recordAsTx(tx, actionApplied, event); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return y.runtime.Broadcast(ctx, changes...)
}

// factory is one process.
type factory struct {
	program *exec.Cmd
	input   io.Closer
}

func startFactory(t *testing.T, y *yard) *factory {
	t.Helper()
	program := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestFactory$", "-test.timeout=30m")
	program.Env = append(os.Environ(), factoryURL+"="+y.db.Config().ConnString(), factoryTenant+"="+y.tenant.String())
	program.Stdout, program.Stderr = os.Stderr, os.Stderr
	input, err := program.StdinPipe()
	y.must(err)
	y.must(program.Start())
	return &factory{program, input}
}

// Four processes record and apply events of 50 keys, and two of them are killed
// (kill -9) at random. Each state equals a fold of the record, its version is
// the number of its events, and so is a rebuild.
func TestProcessesAreKilled(t *testing.T) {
	t.Parallel()
	target := int64(8_000)
	if os.Getenv("HOLDFAST_TEST_LONG") != "" {
		target = 100_000
	}
	y := newYard(t)
	pgtest.Exec(t, y.db, fmt.Sprintf(`ALTER DATABASE %q SET synchronous_commit = off`, y.db.Config().ConnConfig.Database))
	y.db.Reset()
	manual, err := projections.New(y.db, applied(), projections.Config{Send: y.sent.Send, Log: slog.New(slog.DiscardHandler)})
	y.must(err)

	running := make(map[*factory]bool)
	for range 4 {
		running[startFactory(t, y)] = true
	}
	kills := []int64{target/8 + rand.Int64N(target/4), target/2 + rand.Int64N(target/4)}
	t.Logf("kills after %v of %d events", kills, target)
	for _, after := range append(kills, target+target/20) { // the killed ones drew ids that they did not use
		pgtest.Until(t, fmt.Sprint("there are events: ", after), func() bool { return y.recorded() >= after })
		if after > target {
			break
		}
		for victim := range running { // the map's order is random
			y.must(victim.program.Process.Kill())
			_ = victim.program.Wait() // killed
			delete(running, victim)
			break
		}
		running[startFactory(t, y)] = true
	}
	for f := range running {
		y.must(f.input.Close())
	}
	for f := range running {
		y.must(f.program.Wait())
	}
	y.follow()
	y.wantFold("warehouses.totals", actionMoved, 0)
	y.wantFold("warehouses.applied", actionApplied, 0)

	y.must(manual.Register(y.feed))
	for name, action := range map[string]string{"warehouses.totals": actionMoved, "warehouses.applied": actionApplied} {
		n, err := y.feed.RebuildFromRecord(t.Context(), name, nil)
		if err != nil || n != factoryKeys {
			t.Errorf("%s: %d rebuilt, %v", name, n, err)
		}
		y.wantFold(name, action, 1)
	}
}

const recordedSQL = `SELECT coalesce(pg_sequence_last_value('audit_log_audit_id_seq'), 0)`

func (y *yard) recorded() int64 {
	y.t.Helper()
	return pgtest.Int(y.t, y.db, recordedSQL)
}

// wantFold compares every state with a fold of the record, and its version with
// the number of its events and of rebuilds.
func (y *yard) wantFold(name, action string, rebuilds int64) {
	y.t.Helper()
	ctx := y.t.Context()
	states := make(map[string]*totals)
	rows, err := y.db.Query(ctx, `SELECT after->>'warehouse', (after->>'units')::bigint FROM audit_log WHERE action = $1 ORDER BY audit_id`, action)
	y.must(err)
	event := moved{Item: "nail"}
	events := 0
	_, err = pgx.ForEachRow(rows, []any{&event.Warehouse, &event.Units}, func() error {
		if states[event.Warehouse] == nil {
			states[event.Warehouse] = &totals{}
		}
		warehouses().Apply(states[event.Warehouse], event)
		events++
		return nil
	})
	y.must(err)
	if len(states) != factoryKeys {
		y.t.Errorf("%s: events of %d keys, want %d", name, len(states), factoryKeys)
	}
	y.t.Logf("%s: %d events", name, events)
	rows, err = y.db.Query(ctx, `SELECT key, state, version FROM projection_snapshots WHERE projection_name = $1`, name)
	y.must(err)
	var key string
	var got totals
	var version int64
	tag, err := pgx.ForEachRow(rows, []any{&key, &got, &version}, func() error {
		want := states[key]
		if want == nil || fmt.Sprint(got) != fmt.Sprint(*want) || version != want.Events+rebuilds {
			y.t.Errorf("%s %s: version %d, %+v, want %+v and %d rebuilds", name, key, version, got, want, rebuilds)
		}
		got = totals{}
		return nil
	})
	y.must(err)
	if tag.RowsAffected() != int64(len(states)) {
		y.t.Errorf("%s: %d states, want %d", name, tag.RowsAffected(), len(states))
	}
}
