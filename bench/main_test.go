package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/holdfast/holdfast/bench/baselines"
	"github.com/holdfast/holdfast/internal/admission"
	"github.com/holdfast/holdfast/internal/lanes"
	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/internal/requestrows"
)

// TestMain lets the test binary be the services and floods that it starts.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && (os.Args[1] == serveCommand || os.Args[1] == floodCommand) {
		main()
		return
	}
	os.Exit(m.Run())
}

// Every suite runs and returns all its measures. Each repetition checks that
// the rows of the contender add up. The figures of so short a run mean nothing
// and are not checked.
func TestSuites(t *testing.T) {
	t.Parallel()
	o, err := parse([]string{"-short", "-suite", "all"}, t.Output())
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	o.page, o.plot, o.json = filepath.Join(dir, "page.md"), filepath.Join(dir, "plot.svg"), true
	measures, about, err := measure(t.Context(), o, t.Output())
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := o.show(&out, t.Output(), measures, about); err != nil {
		t.Fatal(err)
	}
	var got, want []string
	first, rest, _ := strings.Cut(out.String(), "\n")
	assertHeader(t, first)
	for text := range strings.Lines(rest) {
		var m map[string]any
		if err := json.Unmarshal([]byte(text), &m); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		got = append(got, fmt.Sprint(m["measure"]))
		for _, key := range []string{"value", "unit", "ours", "other", "spread", "noisy"} {
			if _, ok := m[key]; !ok {
				t.Errorf("%s has no %s", m["measure"], key)
			}
		}
	}
	for _, s := range suites {
		want = append(want, s.measures...)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("measures (-want +got):\n%s", diff)
	}
	for name := range targets {
		if !strings.Contains(read(t, o.page), "`"+name+"`") {
			t.Errorf("the page does not show %s", name)
		}
	}
	if text := read(t, o.plot); !strings.HasPrefix(text, "<svg ") || !strings.Contains(text, "Holdfast, drain") {
		t.Errorf("the plot is %q", text)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// The raw statement writes what the drain writes, column by column, and queue
// writes what admission writes. Otherwise the raw statement is not a limit, and
// the drain is measured on easier rows than those of production.
func TestRowsAreThoseOfTheRealThing(t *testing.T) {
	t.Parallel()
	g := newTestEnvironment(t)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(g.reset(t.Context(), 1, true))
	must(g.queue(t.Context(), lanes.Hot, g.slot, 1, firstOf))
	queued := shapes(t, g.db)
	must(g.reset(t.Context(), 1, true))
	admitOne(t, g)
	if diff := cmp.Diff(shapes(t, g.db), queued); diff != "" {
		t.Errorf("queued rows are not as admitted ones (-admitted +queued):\n%s", diff)
	}
	_, err := serveLane(t.Context(), g.hot, g.slot, 1)
	must(err)
	drained := shapes(t, g.db)
	must(g.reset(t.Context(), 1, true))
	admitOne(t, g)
	_, err = (&baselines.Raw{DB: g.db}).Hold(t.Context(), g.slot, 0, 1)
	must(err)
	if diff := cmp.Diff(drained, shapes(t, g.db)); diff != "" {
		t.Errorf("the raw statement's rows are not the drain's (-drain +raw):\n%s", diff)
	}
}

func admitOne(t *testing.T, g *environment) {
	t.Helper()
	err := pgx.BeginFunc(t.Context(), g.db, func(tx pgx.Tx) error {
		_, err := admission.SubmitTx(t.Context(), tx, g.inserter, requestrows.Submission{
			TenantID: g.tenant, CartID: cartID(), VariantID: hotVariant, Quantity: 1,
		})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// shapes are the rows of the tables as JSON, in which values that differ
// between runs are replaced: ids by their length, times by a constant.
func shapes(t *testing.T, db *pgxpool.Pool) map[string][]map[string]any {
	t.Helper()
	all := make(map[string][]map[string]any)
	for _, table := range []string{"reservation_requests", "reservations", "audit_log", "inventory_stocks"} {
		rows, err := db.Query(t.Context(), `SELECT to_jsonb(r) FROM `+table+` r`)
		if err != nil {
			t.Fatal(err)
		}
		found, err := pgx.CollectRows(rows, pgx.RowTo[map[string]any])
		if err != nil {
			t.Fatal(err)
		}
		for _, row := range found {
			alike(row)
		}
		all[table] = found
	}
	return all
}

func alike(row map[string]any) {
	for name, value := range row {
		switch value := value.(type) {
		case map[string]any:
			alike(value)
		case string:
			if _, err := uuid.Parse(value); err == nil {
				row[name] = "an id"
			} else if strings.HasPrefix(value, "cart-") {
				row[name] = "a cart"
			} else if strings.HasSuffix(name, "_at") {
				row[name] = "a time"
			}
		}
	}
}

// newTestBench is a bench on a separate server.
func newTestBench(t *testing.T) *bench {
	t.Helper()
	o, err := parse([]string{"-short"}, t.Output())
	if err != nil {
		t.Fatal(err)
	}
	b, err := newBench(t.Context(), o, t.Output())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

// newTestEnvironment is an environment on a separate server.
func newTestEnvironment(t *testing.T) *environment {
	t.Helper()
	g, err := newTestBench(t).newEnvironment(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.close)
	return g
}

// Every baseline rejects buyers once the stock is sold, and sells all of it.
func TestBaselinesSellOut(t *testing.T) {
	t.Parallel()
	db, tenant := pgtest.New(t), uuid.New()
	const stock, buyers = 20, 50
	for name, newHolder := range map[string]func(*pgxpool.Pool) baselines.Holder{
		"transaction": transaction, "pipelined": pipelined, "statement": statement, "select for update": selectForUpdate,
		"unit rows": unitRows, "micro-batch": microBatch,
	} {
		shop := baselines.Shop{TenantID: tenant, Variants: 1, Stock: stock, Units: name == "unit rows"}
		if err := baselines.Prepare(t.Context(), db, shop); err != nil {
			t.Fatal(err)
		}
		holder := newHolder(db)
		stop := start(t.Context(), holder)
		var sold, refused int64
		var buying errgroup.Group
		answers := make(chan error, buyers)
		for range buyers {
			buying.Go(func() error {
				answers <- holder.Hold(t.Context(), baselines.Request{
					TenantID: tenant, HoldID: newID(), CartID: cartID(), VariantID: hotVariant, Quantity: 1,
				})
				return nil
			})
		}
		_ = buying.Wait() // the answers tell
		stop()
		for range buyers {
			switch err := <-answers; err {
			case nil:
				sold++
			case baselines.ErrSoldOut:
				refused++
			default:
				t.Errorf("%s: %v", name, err)
			}
		}
		// A buyer that takes free units may find the last ones locked.
		if sold > stock || sold+refused != buyers || sold < stock && name != "unit rows" {
			t.Errorf("%s: %d sold and %d refused of %d", name, sold, refused, stock)
		}
		if err := baselines.Check(t.Context(), db, sold); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := baselines.Check(t.Context(), db, sold+1); err == nil {
			t.Errorf("%s: a hold that is not there was not missed", name)
		}
	}
}

// Callers that are refused wait and continue: a load lasts its full time, even
// if only a few requests may wait.
func TestRefusedCallersGoOn(t *testing.T) {
	t.Parallel()
	g := newTestEnvironment(t)
	if err := g.reset(t.Context(), 1, true); err != nil {
		t.Fatal(err)
	}
	g.intake = admission.IntakeConfig{DepthMax: 10}
	enough := make(chan struct{})
	var admitted sample
	var loading errgroup.Group
	loading.Go(func() (err error) {
		admitted, err = g.submit(t.Context(), 16, time.Hour, enough)
		return err
	})
	atLeast := func(column string, want int64) {
		t.Helper()
		err := await(t.Context(), 5*time.Minute, 10*time.Millisecond, func() (missing string, err error) {
			c, err := countRows(t.Context(), g.db)
			if n := map[string]int64{"done": c.done, "undone": c.undone}[column]; err != nil || n >= want {
				return "", err
			}
			return fmt.Sprintf("%+v, want %d %s", c, want, column), nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	atLeast("undone", 1) // more callers than may wait: some are refused until a worker comes
	stop, err := g.work(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	atLeast("done", 40)
	close(enough)
	if err := loading.Wait(); err != nil {
		t.Errorf("the load ended with %v", err)
	}
	if err := g.decided(t.Context(), admitted.count); err != nil {
		t.Error(err)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

func TestMedianAndSpread(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		values         []float64
		median, spread float64
	}{{nil, 0, 0}, {[]float64{4}, 4, 0}, {[]float64{3, 1, 2}, 2, 1}, {[]float64{4, 1, 2, 3}, 2.5, 1.2}} {
		if m, s := median(c.values), spread(c.values); m != c.median || s != c.spread {
			t.Errorf("%v: median %g, spread %g, want %g, %g", c.values, m, s, c.median, c.spread)
		}
	}
}

// A comparison is invalid if the baseline ran at less than 0.8 of its speed
// when the targets were set, rescaled by the raw statement.
func TestSlowBaselinesAreInvalid(t *testing.T) {
	t.Parallel()
	of := func(expected float64, counts ...int64) *series {
		s := &series{contender: &contender{expected: expected}}
		for _, n := range counts {
			s.samples = append(s.samples, sample{count: n, elapsed: 1e9})
		}
		return s
	}
	for _, c := range []struct {
		baseline int64
		valid    bool
	}{{400, true}, {399, false}} { // the raw statement at half its speed: 0.8 × 1000 × 0.5
		all := comparison{"ours": of(0, 8000), "theirs": of(1000, c.baseline), rawName: of(0, rawExpected/2)}
		m := all.over("hot_vs_naive", "ours", "theirs")
		if m.Valid != c.valid || (m.OK != nil) != c.valid {
			t.Errorf("a baseline of %d/s: %+v", c.baseline, m)
		}
	}
	for _, c := range []struct {
		name  string
		value float64
		ok    bool
	}{{"hot_vs_naive", 22, true}, {"hot_vs_naive", 21.9, false}, {"isolation_p99", 1.5, true}, {"isolation_p99", 1.6, false}} {
		if m := newMeasure(c.name, "ratio", []float64{c.value}); m.OK == nil || *m.OK != c.ok {
			t.Errorf("%s of %g: %v, want %t", c.name, c.value, m.OK, c.ok)
		}
	}
}

func TestOptions(t *testing.T) {
	t.Parallel()
	for _, bad := range [][]string{{"-suite", "cold"}, {"-reps", "0"}, {"-seconds", "0"}, {"hot"}} {
		if _, err := parse(bad, t.Output()); err == nil || err == flag.ErrHelp {
			t.Errorf("%v was taken: %v", bad, err)
		}
	}
	o, err := parse([]string{"-suite", "all"}, t.Output())
	if err != nil || len(o.suites) != len(suites) {
		t.Errorf("all are %v, %v", o.suites, err)
	}
}
