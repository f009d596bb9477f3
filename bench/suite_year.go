package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/internal/lanes"
	"github.com/holdfast/holdfast/internal/requestrows"
	"github.com/holdfast/holdfast/sweeper"
	"github.com/holdfast/holdfast/verify"
)

const (
	// months is in how many steps the year is filled. After each, a purge and a
	// vacuum run.
	months    = 12
	yearHours = 8760
	// yearRetention is the programs' default of REQUEST_RETENTION.
	yearRetention = 168 * time.Hour
	// yearRequests is the year that the notes calculate for.
	yearRequests = 100_000_000

	startDrain = "holdfast drain, at the start"
	endDrain   = "holdfast drain, at the end"
	startReads = "reads, at the start"
	endReads   = "reads, at the end"
)

// year fills one database as a year of requests does, month by month with the
// purge and the vacuum of each, and compares it with one at the start of its year.
// Requests and ended reservations are kept for REQUEST_RETENTION, the record for
// ever.
func (b *bench) year(ctx context.Context) ([]Measure, error) {
	start, end, err := b.emptyAndFull(ctx)
	if err != nil {
		return nil, err
	}
	defer start.close()
	defer end.close()
	var past elapsedYear
	for month := 1; month <= months; month++ {
		if err := b.live(ctx, end, month, &past); err != nil {
			return nil, err
		}
	}
	if err := end.settle(ctx); err != nil {
		return nil, err
	}
	if err := past.look(ctx, end, b.rows); err != nil {
		return nil, err
	}
	past.print(b.stderr, b.rows)
	if err := past.verify(ctx, b, end); err != nil {
		return nil, err
	}
	c, err := b.compareAges(ctx, b.drainOn(start, startDrain, lanes.Hot), b.drainOn(end, endDrain, lanes.Hot), b.readsOn(start, startReads), b.readsOn(end, endReads))
	if err != nil {
		return nil, err
	}
	measures := append([]Measure{c.over("year_drain", endDrain, startDrain), c.over("year_reads", endReads, startReads)}, past.measures(b.rows)...)
	for i := range measures {
		measures[i].note("%s requests in the year", group(fmt.Sprint(b.rows)))
	}
	return measures, nil
}

// elapsedYear is what a year leaves, and what it took.
type elapsedYear struct {
	purged           int64
	purging          time.Duration
	vacuum           time.Duration // of all tables, in the last month
	tables           []tableSize
	whole, since     time.Duration // of verify
	depth, depthLong int           // of the deepest index: here, and calculated for yearRequests
	deepest          string
}

// tableSize is a table at the end. Bytes include its indexes.
type tableSize struct {
	Name        string
	Rows, Bytes int64
}

// live fills in a month, purges as of its end, and vacuums.
func (b *bench) live(ctx context.Context, g *environment, month int, past *elapsedYear) error {
	first, last := b.rows*(month-1)/months+1, b.rows*month/months
	for from := first; from <= last; from += ageChunk {
		if err := b.age(ctx, g, from, min(from+ageChunk-1, last), fmt.Sprintf("%d hours", yearHours+1), fmt.Sprintf("%d hours", yearHours)); err != nil {
			return err
		}
	}
	// All rows have the times that they have at the end of the year, so an
	// earlier purge keeps rows for the months that follow, too.
	left := time.Duration(months-month) * yearHours / months * time.Hour
	s, err := sweeper.New(g.db, slog.New(slog.DiscardHandler), sweeper.Config{RequestRetention: yearRetention + left})
	if err != nil {
		return err
	}
	began := time.Now()
	for more := true; more; {
		report, err := s.PurgeOnce(ctx, []lanes.Stream{{Lane: lanes.Hot, Slot: g.slot}, {Lane: lanes.Normal, Slot: 0}})
		if err != nil {
			return err
		}
		past.purged += report.Requests + report.Reservations
		more = report.Unfinished()
	}
	past.purging += time.Since(began)
	began = time.Now()
	if _, err := g.unbounded.Exec(ctx, `VACUUM (ANALYZE)`); err != nil {
		return err
	}
	past.vacuum = time.Since(began)
	b.progress("month %d: %s rows purged in %.1f s so far, vacuumed in %.1f s", month, group(fmt.Sprint(past.purged)), past.purging.Seconds(), past.vacuum.Seconds())
	return nil
}

const (
	tablesSQL = `
SELECT c.relname AS name, greatest(c.reltuples, 0)::bigint AS rows, pg_total_relation_size(c.oid) AS bytes
FROM pg_class c
WHERE c.relkind = 'r' AND c.relnamespace IN ('public'::regnamespace, 'river'::regnamespace)
ORDER BY bytes DESC
LIMIT 6`
	pageinspectSQL = `CREATE EXTENSION IF NOT EXISTS pageinspect`
	// depths is a statement for the deepest B-tree: how many levels and entries it
	// has, and how many entries a page. It needs pageinspect.
	depths = `
SELECT c.relname AS name, (public.bt_metap(c.oid::regclass::text)).level + 1 AS levels, c.reltuples, c.reltuples / greatest(c.relpages, 1) AS fanout
FROM pg_class c JOIN pg_am a ON a.oid = c.relam
WHERE c.relkind = 'i' AND a.amname = 'btree' AND c.relnamespace = 'public'::regnamespace AND c.reltuples > 0
ORDER BY levels DESC, c.reltuples DESC
LIMIT 1`
)

// look reads the sizes of tables and the depth of the indexes, and calculates the
// depth for a year of yearRequests.
func (y *elapsedYear) look(ctx context.Context, g *environment, requests int) error {
	rows, err := g.unbounded.Query(ctx, tablesSQL)
	if err != nil {
		return err
	}
	if y.tables, err = pgx.CollectRows(rows, pgx.RowToStructByName[tableSize]); err != nil {
		return err
	}
	// pageinspect is a contributed module, which an installation may lack.
	if _, err := g.unbounded.Exec(ctx, pageinspectSQL); err != nil {
		return nil
	}
	var entries, fanout float64
	if err := g.unbounded.QueryRow(ctx, depths).Scan(&y.deepest, &y.depth, &entries, &fanout); err != nil {
		return err
	}
	entries *= yearRequests / float64(requests)
	y.depthLong = max(y.depth, int(math.Ceil(math.Log(entries)/math.Log(max(fanout, 2)))))
	return nil
}

// print shows the tables at the end.
func (y *elapsedYear) print(stderr io.Writer, requests int) {
	w := tabwriter.NewWriter(stderr, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintf(w, "table\trows\tMB\tbytes a request of the year\tGB in a year of %s\n", group(fmt.Sprint(yearRequests)))
	for _, t := range y.tables {
		each := float64(t.Bytes) / float64(requests)
		_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%.0f\t%.0f\n", t.Name, group(fmt.Sprint(t.Rows)), figure(float64(t.Bytes)/1e6), each, each*yearRequests/1e9)
	}
	_ = w.Flush() // a closed terminal cannot show the error either
}

// verify times a whole run of verify and one of the last day.
func (y *elapsedYear) verify(ctx context.Context, b *bench, g *environment) error {
	db, err := g.open(ctx, 4) // without the worker's generic plans, as the program
	if err != nil {
		return err
	}
	for _, run := range []struct {
		took  *time.Duration
		since time.Time
	}{{&y.whole, time.Time{}}, {&y.since, time.Now().Add(-24 * time.Hour)}} {
		began := time.Now()
		report, err := verify.Run(ctx, db, verify.Config{Retention: yearRetention, Since: run.since, StatementTimeout: time.Hour})
		if err != nil {
			return err
		}
		*run.took = time.Since(began)
		if run.since.IsZero() {
			b.progress("verify of everything: %.1f s", run.took.Seconds())
		} else {
			b.progress("verify since %s: %.1f s", run.since.Format(time.DateOnly), run.took.Seconds())
		}
		if report.OK {
			continue
		}
		var broken []string
		for _, check := range report.Checks {
			if check.Broken > 0 {
				broken = append(broken, fmt.Sprintf("%s (%d)", check.Name, check.Broken))
			}
		}
		return fmt.Errorf("the year's rows are not valid: %s", strings.Join(broken, ", "))
	}
	return nil
}

// measures are those without a baseline, with their arithmetic for a whole year.
func (y *elapsedYear) measures(requests int) []Measure {
	scale := yearRequests / float64(requests)
	var bytes int64
	var tables []string
	for _, t := range y.tables {
		bytes += t.Bytes
		tables = append(tables, fmt.Sprintf("%s %.0f", t.Name, float64(t.Bytes)/float64(requests)))
	}
	each := float64(bytes) / float64(requests)
	kept := newMeasure("year_bytes", "bytes", []float64{each})
	kept.note("by table: %s; %.0f GB for %s", strings.Join(tables, ", "), each*yearRequests/1e9, group(fmt.Sprint(yearRequests)))
	rate := float64(y.purged) / y.purging.Seconds()
	purge := newMeasure("year_purge_per_second", "rows/s", []float64{rate})
	purge.note("%.1f h for %s", float64(y.purged)*scale/rate/3600, group(fmt.Sprint(yearRequests)))
	vacuum := newMeasure("year_vacuum_seconds", "s", []float64{y.vacuum.Seconds()})
	vacuum.note("all tables in the last month; %.1f h for %s", y.vacuum.Seconds()*scale/3600, group(fmt.Sprint(yearRequests)))
	whole := newMeasure("year_verify_seconds", "s", []float64{y.whole.Seconds()})
	whole.note("%.1f h for %s; the last day alone %.1f s", y.whole.Seconds()*scale/3600, group(fmt.Sprint(yearRequests)), y.since.Seconds())
	levels := skipped("year_index_levels", "pageinspect is not installed")
	if y.depth > 0 {
		levels = newMeasure("year_index_levels", "levels", []float64{float64(y.depth)})
		levels.note("%s; %d for %s", y.deepest, y.depthLong, group(fmt.Sprint(yearRequests)))
	}
	return []Measure{kept, purge, vacuum, whole, levels}
}

const someReadsSQL = `
SELECT request_id, cart_id, variant_id
FROM reservation_requests
WHERE variant_id IS NOT NULL
ORDER BY sequence DESC
LIMIT 5000`

// readsOn reads requests, their carts and their stocks one after the other.
func (b *bench) readsOn(g *environment, name string) *contender {
	type asked struct {
		RequestID         uuid.UUID
		CartID, VariantID string
	}
	var some []asked
	return &contender{
		name: name,
		prepare: func(ctx context.Context) error {
			rows, err := g.unbounded.Query(ctx, someReadsSQL)
			if err != nil {
				return err
			}
			some, err = pgx.CollectRows(rows, pgx.RowToStructByPos[asked])
			rand.Shuffle(len(some), func(i, j int) { some[i], some[j] = some[j], some[i] }) //nolint:gosec // no secret
			return err
		},
		run: func(ctx context.Context, long time.Duration) (s sample, err error) {
			var took []time.Duration
			began := time.Now()
			for i := 0; s.count == 0 || time.Since(began) < long; i++ {
				one := some[i%len(some)]
				asking := time.Now()
				if _, err := requestrows.Get(ctx, g.db, g.tenant, one.RequestID); err != nil {
					return s, fmt.Errorf("read request %s: %w", one.RequestID, err)
				}
				if _, err := requestrows.ViewCart(ctx, g.db, g.tenant, one.CartID, 0, ""); err != nil {
					return s, err
				}
				if _, err := inventory.Get(ctx, g.db, g.tenant, one.VariantID); err != nil {
					return s, err
				}
				took = append(took, time.Since(asking))
				s.count += 3
			}
			s.elapsed = time.Since(began)
			slices.Sort(took)
			s.p50, s.p99 = quantile(took, 0.5), quantile(took, 0.99)
			return s, nil
		},
	}
}
