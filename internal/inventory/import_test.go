package inventory_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/internal/lanes"
)

type rejected = inventory.RejectedLine

// imported runs an import and fails the test unless its report is as given.
func (b *stockBundle) imported(t *testing.T, format inventory.Format, text string, options inventory.ImportOptions, want int64, bad ...rejected) {
	t.Helper()
	report, err := inventory.Import(t.Context(), b.pool, b.tenant, format, strings.NewReader(text), clerk, options)
	if err != nil {
		t.Fatal(err)
	}
	expected := inventory.ImportReport{Imported: want, Rejected: int64(len(bad)), RejectedLines: append([]rejected{}, bad...)}
	if diff := cmp.Diff(expected, report); diff != "" {
		t.Error(diff)
	}
}

func TestImportSetsWhatTheLinesSay(t *testing.T) {
	t.Parallel()
	const inCSV = "stock,variant_id,max_per_cart,backorder,tracked,hold_ttl_seconds,lane\n" +
		"7,new,5,,,900,hot\n" +
		"12,changed,,,,,\n" +
		",patched,0,true,,0,normal\n" +
		"10,same,,false,true,,auto\n" +
		",digital,,,false,,\n"
	const inNDJSON = `{"variant_id":"new","stock":7,"max_per_cart":5,"hold_ttl_seconds":900,"lane":"hot"}
{"variant_id":"changed","stock":12}
{"variant_id":"patched","max_per_cart":null,"backorder":true,"hold_ttl_seconds":0,"lane":"normal"}
{"variant_id":"same","stock":10,"backorder":false,"tracked":true,"lane":"auto"}
{"variant_id":"digital","tracked":false}`
	for format, text := range map[inventory.Format]string{inventory.CSV: inCSV, inventory.NDJSON: inNDJSON} {
		t.Run(string(format), func(t *testing.T) {
			t.Parallel()
			b := newStocks(t)
			plain := stockRow{Stock: 10, Reserved: 4, Tracked: true, Lane: "auto"}
			full := stockRow{10, 4, true, false, new(int32(60)), new(int32(2)), "hot", true}
			b.put(t, "changed", plain)
			b.put(t, "same", plain)
			b.put(t, "patched", full)
			b.imported(t, format, text, inventory.ImportOptions{}, 5)
			want := map[string]stockRow{
				"new":     {Stock: 7, Tracked: true, HoldTTLSeconds: new(int32(900)), MaxPerCart: new(int32(5)), Lane: "hot"},
				"changed": {Stock: 12, Reserved: 4, Tracked: true, Lane: "auto"},
				"patched": {Stock: 10, Reserved: 4, Tracked: true, Backorder: true, Lane: "normal", Token: true}, // imports do not change the admission
				"same":    plain,
				"digital": {Lane: "auto"},
			}
			if diff := cmp.Diff(want, b.rows(t)); diff != "" {
				t.Error(diff)
			}
			for id, history := range map[string][]change{
				"new":     {{"stock.set", "", image(t, "new", want["new"])}},
				"changed": {{"stock.set", image(t, "changed", plain), image(t, "changed", want["changed"])}},
				"patched": {{"stock.set", image(t, "patched", full), image(t, "patched", want["patched"])}},
				"same":    nil,
				"digital": {{"stock.set", "", image(t, "digital", want["digital"])}},
			} {
				if diff := cmp.Diff(history, b.history(t, id)); diff != "" {
					t.Errorf("%s: %s", id, diff)
				}
			}
			// The same import again changes and records nothing.
			b.imported(t, format, text, inventory.ImportOptions{}, 5)
			if n := len(b.history(t, "changed")); n != 1 {
				t.Errorf("%d changes are recorded", n)
			}
		})
	}
}

// Only the invalid lines are rejected, in their order, wherever the error is
// detected. The other lines of their batch take effect.
func TestImportRejectsLines(t *testing.T) {
	t.Parallel()
	b := newStocks(t)
	b.put(t, "held", stockRow{Stock: 10, Reserved: 4, Tracked: true})
	b.put(t, "short", stockRow{Stock: 0, Reserved: 4, Tracked: true, Backorder: true})
	b.put(t, "digital", stockRow{Stock: 0, Reserved: 4})
	const short = "would leave fewer units than are reserved"
	b.imported(t, inventory.CSV, "variant_id,stock,tracked,backorder\n"+
		"a,1,,\n"+ // 2
		"held,3,,\n"+
		"b,x,,\n"+ // 4
		"new,,,\n"+
		"new,,true,true\n"+ // 6
		"\n"+
		"new,5,,\n"+ // 8
		"new,,,true\n"+
		"short,,,false\n"+ // 10
		"digital,,true,\n"+
		"digital,,true,true\n"+ // 12
		"c,1,,\n",
		inventory.ImportOptions{}, 5,
		rejected{3, "stock", short},
		rejected{4, "stock", "must be a whole number in range"},
		rejected{5, "stock", "is required for a new variant"},
		rejected{6, "stock", "is required for a new variant"},
		rejected{10, "backorder", short},
		rejected{11, "tracked", short},
	)
	want := map[string]stockRow{
		"a": {Stock: 1, Tracked: true, Lane: "auto"}, "c": {Stock: 1, Tracked: true, Lane: "auto"},
		"held":    {Stock: 10, Reserved: 4, Tracked: true, Lane: "auto"},
		"short":   {Stock: 0, Reserved: 4, Tracked: true, Backorder: true, Lane: "auto"},
		"digital": {Stock: 0, Reserved: 4, Tracked: true, Backorder: true, Lane: "auto"},
		"new":     {Stock: 5, Tracked: true, Backorder: true, Lane: "auto"},
	}
	if diff := cmp.Diff(want, b.rows(t)); diff != "" {
		t.Error(diff)
	}
	b.wantChained(t, "new", 2)
}

// A variant on several lines has the values of the last line. Fields that this
// line leaves out have the values of the line before. This is true within a
// batch and across batches.
func TestImportTakesRepeatedVariantsInOrder(t *testing.T) {
	t.Parallel()
	b := newStocks(t)
	var text strings.Builder
	text.WriteString("variant_id,stock,max_per_cart\n")
	for i := range 1201 {
		fmt.Fprintf(&text, "v%d,%d,%s\n", i%2, i+1, map[bool]string{true: "7", false: ""}[i == 600])
	}
	b.imported(t, inventory.CSV, text.String(), inventory.ImportOptions{}, 1201)
	want := map[string]stockRow{
		"v0": {Stock: 1201, Tracked: true, MaxPerCart: new(int32(7)), Lane: "auto"},
		"v1": {Stock: 1200, Tracked: true, Lane: "auto"},
	}
	if diff := cmp.Diff(want, b.rows(t)); diff != "" {
		t.Error(diff)
	}
	b.wantChained(t, "v0", 601)
	b.wantChained(t, "v1", 600)
}

func TestImportListsTheFirstRejectedLines(t *testing.T) {
	t.Parallel()
	b := newStocks(t)
	var text strings.Builder
	text.WriteString("variant_id,stock\n")
	for i := range 3000 {
		fmt.Fprintf(&text, "v%d,%s\n", i, map[bool]string{true: "", false: "x"}[i%3 == 0])
	}
	text.WriteString("last,1\n")
	report, err := inventory.Import(t.Context(), b.pool, b.tenant, inventory.CSV, strings.NewReader(text.String()), clerk, inventory.ImportOptions{})
	if err != nil || report.Imported != 1 || report.Rejected != 3000 || len(report.RejectedLines) != inventory.MaxRejectedLines {
		t.Fatalf("imported %d, rejected %d, listed %d, error %v", report.Imported, report.Rejected, len(report.RejectedLines), err)
	}
	for i, r := range report.RejectedLines {
		if r.Line != int64(i+2) {
			t.Fatalf("rejected line %d is %+v", i, r)
		}
	}
}

func TestImportReturnsWhatEndsIt(t *testing.T) {
	t.Parallel()
	b := newStocks(t)
	for _, c := range []struct {
		format inventory.Format
		text   string
		field  string
	}{{"xlsx", "variant_id,stock\nv,1", "format"}, {inventory.CSV, "variant_id,price\nv,1", "header"}, {inventory.CSV, "", "header"}} {
		_, err := inventory.Import(t.Context(), b.pool, b.tenant, c.format, strings.NewReader(c.text), clerk, inventory.ImportOptions{})
		if invalidField(err) != c.field {
			t.Errorf("%+v: got %v", c, err)
		}
	}
	if rows := b.rows(t); len(rows) != 0 {
		t.Errorf("rows %v", rows)
	}

	var text strings.Builder
	for i := range 600 {
		fmt.Fprintf(&text, `{"variant_id":"v%d","stock":1}`+"\n", i)
	}
	broken := errors.New("connection lost")
	input := io.MultiReader(strings.NewReader(text.String()), iotest.ErrReader(broken))
	report, err := inventory.Import(t.Context(), b.pool, b.tenant, inventory.NDJSON, input, clerk, inventory.ImportOptions{})
	if !errors.Is(err, broken) || report.Imported != 500 || len(b.rows(t)) != 500 {
		t.Errorf("imported %d of %d rows, error %v", report.Imported, len(b.rows(t)), err)
	}

	ended, end := context.WithCancel(t.Context())
	end()
	report, err = inventory.Import(ended, b.pool, b.tenant, inventory.NDJSON, strings.NewReader(text.String()), clerk, inventory.ImportOptions{})
	if !errors.Is(err, context.Canceled) || report.Imported != 0 {
		t.Errorf("imported %d, error %v", report.Imported, err)
	}
}

// Imports and single changes of the same variants, in opposite orders, wait for
// each other without a deadlock.
func TestImportsSideBySideDoNotDeadlock(t *testing.T) {
	t.Parallel()
	b := newStocks(t)
	const variants, rounds = 200, 4
	for i := 0; i < variants; i += 3 {
		b.put(t, fmt.Sprintf("v%03d", i), stockRow{Tracked: true})
	}
	var g errgroup.Group
	for worker := range 4 {
		g.Go(func() error {
			for round := range rounds {
				var text strings.Builder
				for i := range variants {
					if worker%2 == 1 {
						i = variants - 1 - i
					}
					fmt.Fprintf(&text, `{"variant_id":"v%03d","stock":%d}`+"\n", i, 1+10*worker+round)
				}
				report, err := inventory.Import(t.Context(), b.pool, b.tenant, inventory.NDJSON, strings.NewReader(text.String()), clerk, inventory.ImportOptions{})
				if err != nil || report.Imported != variants {
					return fmt.Errorf("worker %d imported %d: %w", worker, report.Imported, err)
				}
			}
			return nil
		})
	}
	g.Go(func() error {
		for i := range 50 {
			if _, err := inventory.Set(t.Context(), b.pool, b.tenant, fmt.Sprintf("v%03d", 197-i), patch{Stock: new(int64(9))}, clerk); err != nil {
				return err
			}
		}
		return nil
	})
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	if n := len(b.rows(t)); n != variants {
		t.Errorf("%d rows", n)
	}
	// The statistics of a session are sent when it ends.
	b.pool.Reset()
	var deadlocks int
	if err := b.pool.QueryRow(t.Context(), `SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()`).Scan(&deadlocks); err != nil || deadlocks != 0 {
		t.Errorf("%d deadlocks, error %v", deadlocks, err)
	}
	for i := 1; i < variants; i += 3 {
		id := fmt.Sprintf("v%03d", i)
		b.wantChained(t, id, len(b.history(t, id)))
	}
}

// OnLane receives the last lane of each variant, before the stocks are locked
// and in the batch's transaction.
func TestImportReportsTheLanes(t *testing.T) {
	t.Parallel()
	b := newStocks(t)
	var heard [][]lanes.Placement
	options := inventory.ImportOptions{OnLane: func(ctx context.Context, tx pgx.Tx, tenantID uuid.UUID, wishes []lanes.Placement) error {
		heard = append(heard, wishes)
		var locked bool
		err := tx.QueryRow(ctx, `SELECT pg_current_xact_id_if_assigned() IS NOT NULL`).Scan(&locked)
		if locked || tenantID != b.tenant {
			t.Errorf("a row is written already, or the tenant is %s", tenantID)
		}
		return err
	}}
	b.imported(t, inventory.CSV, "variant_id,stock,lane\nb,1,hot\na,1,normal\nc,1,\nb,2,\na,,auto\n", options, 5)
	want := [][]lanes.Placement{{{VariantID: "a", Wish: "auto"}, {VariantID: "b", Wish: "hot"}}}
	if diff := cmp.Diff(want, heard); diff != "" {
		t.Error(diff)
	}
	b.imported(t, inventory.CSV, "variant_id,stock,lane\nb,3,\n", options, 1)
	if len(heard) != 1 {
		t.Errorf("OnLane received %v for lines without a lane", heard[1:])
	}
}

// If a line with a lane is rejected, the work of OnLane is rolled back and done
// again for the other lines.
func TestImportUndoesTheLanesOfRejectedLines(t *testing.T) {
	t.Parallel()
	b := newStocks(t)
	b.exec(t, `CREATE TABLE pins (variant_id text)`)
	b.put(t, "held", stockRow{Stock: 10, Reserved: 4, Tracked: true})
	options := inventory.ImportOptions{OnLane: func(ctx context.Context, tx pgx.Tx, _ uuid.UUID, wishes []lanes.Placement) error {
		for _, w := range wishes {
			if _, err := tx.Exec(ctx, `INSERT INTO pins VALUES ($1)`, w.VariantID); err != nil {
				return err
			}
		}
		return nil
	}}
	b.imported(t, inventory.CSV, "variant_id,stock,lane\na,1,hot\nheld,3,hot\nnew,,hot\nb,1,hot\nx,,\n", options, 2,
		rejected{3, "stock", "would leave fewer units than are reserved"},
		rejected{4, "stock", "is required for a new variant"},
		rejected{6, "stock", "is required for a new variant"})
	rows, err := b.pool.Query(t.Context(), `SELECT variant_id FROM pins ORDER BY 1`)
	if err != nil {
		t.Fatal(err)
	}
	pins, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if diff := cmp.Diff([]string{"a", "b"}, pins); diff != "" || err != nil {
		t.Error(diff, err)
	}
}

// A batch that fails on data is bisected until only the failing lines are
// rejected.
func TestImportSplitsAFailingBatch(t *testing.T) {
	t.Parallel()
	b := newStocks(t)
	refuse := &inventory.InvalidError{Field: "lane", Message: "disk full"}
	outage := errors.New("no answer")
	options := inventory.ImportOptions{OnLane: func(ctx context.Context, tx pgx.Tx, _ uuid.UUID, wishes []lanes.Placement) error {
		for _, w := range wishes {
			switch w.VariantID {
			case "v007":
				_, err := tx.Exec(ctx, `SELECT 1 / 0`)
				return err
			case "v123":
				return refuse
			case "outage":
				return outage
			}
		}
		return nil
	}}
	var text strings.Builder
	text.WriteString("variant_id,stock,lane\n")
	for i := range 200 {
		fmt.Fprintf(&text, "v%03d,%d,hot\n", i, i)
	}
	b.imported(t, inventory.CSV, text.String(), options, 198,
		rejected{9, "line", "was refused by the database"}, rejected{125, "lane", "disk full"})
	rows := b.rows(t)
	if _, there := rows["v007"]; len(rows) != 198 || there || rows["v008"].Stock != 8 {
		t.Errorf("%d rows, v008 %+v", len(rows), rows["v008"])
	}
	report, err := inventory.Import(t.Context(), b.pool, b.tenant, inventory.CSV, strings.NewReader("variant_id,stock,lane\nx,1,\noutage,1,hot\n"), clerk, options)
	if !errors.Is(err, outage) || report.Imported != 0 {
		t.Errorf("imported %d, error %v", report.Imported, err)
	}
}
