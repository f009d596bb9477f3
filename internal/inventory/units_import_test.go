package inventory_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"

	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/internal/unitrows"
)

// importUnits imports a block from text and fails the test unless the report is
// the given one.
func (c *carts) importUnits(block string, format inventory.Format, text string, want inventory.UnitImportReport) {
	c.t.Helper()
	got, err := inventory.ImportUnits(c.t.Context(), c.db, c.tenant, block, format, strings.NewReader(text), shopper)
	c.must(err)
	want.Rejected = int64(len(want.RejectedLines))
	want.RejectedLines = append([]rejected{}, want.RejectedLines...)
	if diff := cmp.Diff(want, got); diff != "" {
		c.t.Errorf("%s %q (-want +got):\n%s", format, text, diff)
	}
}

// wantPlaces checks the units of a block: "a@1 b@2".
func (c *carts) wantPlaces(block, want string) {
	c.t.Helper()
	units, err := unitrows.List(c.t.Context(), c.db, unitrows.Block{TenantID: c.tenant, Block: block}, "", 1000)
	c.must(err)
	var got []string
	for _, u := range units {
		got = append(got, fmt.Sprintf("%s@%d", u.UnitID, u.Position))
	}
	if diff := cmp.Diff(want, strings.Join(got, " ")); diff != "" {
		c.t.Errorf("units of %s (-want +got):\n%s", block, diff)
	}
}

func (c *carts) wantCounts(block string, active, pending, inactive int64) {
	c.t.Helper()
	got, err := inventory.CountUnits(c.t.Context(), c.db, c.tenant, block)
	c.must(err)
	if diff := cmp.Diff(inventory.BlockCounts{Active: active, Pending: pending, Inactive: inactive, NamedUnits: true}, got); diff != "" {
		c.t.Errorf("counts of %s (-want +got):\n%s", block, diff)
	}
}

// The same input may be sent again in either format; what is rejected is
// reported by line and field.
func TestImportUnits(t *testing.T) {
	t.Parallel()
	c := newCarts(t)
	const inCSV = "unit_id,position\na,\nb,5\nc,\n,1\na,\nb,6\ne,x\nf,2\n"
	bad := []rejected{
		{Line: 5, Field: "unit_id", Message: "must not be empty, only dots or only slashes"},
		{Line: 7, Field: "position", Message: "is not that of the unit, which is 5: a unit does not move"},
		{Line: 8, Field: "position", Message: "must be a whole number in range"},
	}
	c.importUnits("hall", inventory.CSV, inCSV, inventory.UnitImportReport{Added: 4, Unchanged: 1, RejectedLines: bad})
	c.importUnits("hall", inventory.CSV, inCSV, inventory.UnitImportReport{Unchanged: 5, RejectedLines: bad})
	c.wantPlaces("hall", "a@1 b@5 c@6 f@2")
	c.importUnits("hall", inventory.NDJSON, `{"unit_id":"c"}`+"\n"+`{"position":3,"unit_id":"g"}`, inventory.UnitImportReport{Added: 1, Unchanged: 1})
	c.wantPlaces("hall", "a@1 b@5 c@6 f@2 g@3")
	c.wantCounts("hall", 5, 0, 0)
	c.wantStock("hall", 5, 0)
	if n := c.int(`SELECT count(*) FROM audit_log WHERE action = 'stock.adjusted'`); n != 2 {
		t.Errorf("%d audit rows for two batches that added units", n)
	}

	_, err := inventory.ImportUnits(t.Context(), c.db, c.tenant, "none", inventory.CSV, strings.NewReader("unit_id\n"), shopper)
	c.must(err)
	if _, err := inventory.CountUnits(t.Context(), c.db, c.tenant, "none"); !errors.Is(err, inventory.ErrUnknownVariant) {
		t.Errorf("an import without a unit makes a block: %v", err)
	}
	c.stock("shirt", 5)
	report, err := inventory.ImportUnits(t.Context(), c.db, c.tenant, "shirt", inventory.CSV, strings.NewReader("unit_id\na\n"), shopper)
	if !errors.Is(err, inventory.ErrCounted) || report.Added != 0 {
		t.Errorf("units of a counted variant: %+v, %v", report, err)
	}
	c.wantStock("shirt", 5, 0)
	c.apart(t).importUnits("hall", inventory.CSV, "unit_id\na\n", inventory.UnitImportReport{Added: 1})
}

// The counters of a block follow its units, and the page of units shows them.
func TestListUnits(t *testing.T) {
	t.Parallel()
	c := newCarts(t)
	c.seats("hall", 7)
	c.wantCounts("hall", 7, 0, 0)
	sold := c.add("a", "hall", 2)
	c.decide(sold)
	if _, err := c.checkout("a"); err != nil {
		t.Fatal(err)
	}
	c.decide(c.add("b", "hall", 3))
	c.wantCounts("hall", 2, 3, 2)
	var seen []string
	cursor := ""
	for pages := 1; ; pages++ {
		page, err := inventory.ListUnits(t.Context(), c.db, c.tenant, "hall", 3, cursor)
		c.must(err)
		for _, u := range page.Items {
			seen = append(seen, fmt.Sprintf("%s %s", u.UnitID, u.Status))
		}
		cursor = page.NextCursor
		if cursor == "" && pages != 3 || pages > 3 || page.Active != 2 {
			t.Fatalf("page %d is %+v", pages, page)
		}
		if cursor == "" {
			break
		}
	}
	want := []string{"s1 inactive", "s2 inactive", "s3 pending_inactive", "s4 pending_inactive", "s5 pending_inactive", "s6 active", "s7 active"}
	if diff := cmp.Diff(want, seen); diff != "" {
		t.Errorf("units (-want +got):\n%s", diff)
	}
	unit, err := inventory.GetUnit(t.Context(), c.db, c.tenant, "hall", "s2")
	c.must(err)
	if diff := cmp.Diff(unitrows.Unit{UnitID: "s2", Position: 2, Status: unitrows.Inactive, ReservationID: sold.RequestID}, unit); diff != "" {
		t.Errorf("s2 (-want +got):\n%s", diff)
	}
	if _, err := inventory.GetUnit(t.Context(), c.db, c.tenant, "hall", "s8"); !errors.Is(err, inventory.ErrUnknownUnit) {
		t.Errorf("s8: %v", err)
	}
	for _, cursor := range []string{"x", "MQ", "MnMx"} {
		_, err := inventory.ListUnits(t.Context(), c.db, c.tenant, "hall", 0, cursor)
		if wrong, ok := errors.AsType[*inventory.InvalidError](err); !ok || wrong.Field != "cursor" {
			t.Errorf("cursor %s: %v", cursor, err)
		}
	}
}

// A request for a block is a request for an unknown variant where the id is
// that of a counted one.
func TestBlockOfCountedUnits(t *testing.T) {
	t.Parallel()
	c := newCarts(t)
	c.stock("shirt", 5)
	request := c.add("a", "shirt", 2)
	request.Block = true
	if outcome := c.decide(request); outcome != inventory.UnknownVariant {
		t.Errorf("outcome %s", outcome)
	}
	c.wantStock("shirt", 5, 0)
	request.Block, request.RequestID = false, c.add("a", "shirt", 2).RequestID
	if outcome := c.decide(request); outcome != inventory.Granted {
		t.Errorf("outcome %s", outcome)
	}
}

func TestCheckUnits(t *testing.T) {
	t.Parallel()
	c := newCarts(t)
	c.seats("hall", 3)
	c.stock("shirt", 1)
	other := c.apart(t)
	other.importUnits("hall", inventory.CSV, "unit_id\nx\n", inventory.UnitImportReport{Added: 1})
	c.importUnits("stalls", inventory.CSV, "unit_id\ny\n", inventory.UnitImportReport{Added: 1})
	for _, tc := range []struct{ block, ids, field string }{
		{"hall", "s1 s2 s3", ""}, {"hall", "s3 s4 s5", "unit_ids[1]"}, {"hall", "x", "unit_ids[0]"}, {"hall", "s1 y", "unit_ids[1]"},
		{"none", "s1", ""}, {"shirt", "s1", ""},
	} {
		err := inventory.CheckUnits(t.Context(), c.db, c.tenant, tc.block, strings.Fields(tc.ids))
		wrong, ok := errors.AsType[*inventory.InvalidError](err)
		if ok != (tc.field != "") || ok && wrong.Field != tc.field || !ok && err != nil {
			t.Errorf("%s of %s: %v, want %q", tc.ids, tc.block, err, tc.field)
		}
	}
}

// Imports into one block at the same time, of lists that overlap: each unit is
// made once, at a position of its own.
func TestImportUnitsSideBySide(t *testing.T) {
	t.Parallel()
	c := newCarts(t)
	const units, workers = 2000, 4
	var g errgroup.Group
	reports := make([]inventory.UnitImportReport, workers)
	for w := range workers {
		g.Go(func() (err error) {
			var text strings.Builder
			text.WriteString("unit_id\n")
			for i := range units {
				fmt.Fprintf(&text, "s%d\n", (i+w*units/workers)%units)
			}
			reports[w], err = inventory.ImportUnits(t.Context(), c.db, c.tenant, "hall", inventory.CSV, strings.NewReader(text.String()), shopper)
			return err
		})
	}
	c.must(g.Wait())
	var added, unchanged int64
	for _, r := range reports {
		added, unchanged = added+r.Added, unchanged+r.Unchanged
	}
	if added != units || unchanged != (workers-1)*units {
		t.Errorf("added %d, unchanged %d", added, unchanged)
	}
	c.wantCounts("hall", units, 0, 0)
	if last := c.int(`SELECT max(position) FROM postings`); last != units {
		t.Errorf("the last position is %d, want %d: no gap", last, units)
	}
}

// numberedUnits is an input of many units. It measures the memory in use each
// 100,000 lines.
type numberedUnits struct {
	t          *testing.T
	next, last int
	rest       []byte
	most       uint64 // bytes in use
}

func (n *numberedUnits) Read(p []byte) (int, error) {
	if len(n.rest) == 0 {
		if n.next > n.last {
			return 0, io.EOF
		}
		if n.next%100_000 == 0 {
			var m runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&m)
			n.most = max(n.most, m.HeapAlloc)
		}
		n.rest = fmt.Appendf(nil, "{\"unit_id\":\"row-%d-seat-%d\"}\n", n.next/1000, n.next)
		n.next++
	}
	got := copy(p, n.rest)
	n.rest = n.rest[got:]
	return got, nil
}

// An import takes bounded memory, however long it is: 1,000,000 units with
// HOLDFAST_TEST_LONG, 50,000 without. The test is not parallel, because it
// measures the memory of the process.
func TestImportManyUnits(t *testing.T) {
	c := newCarts(t)
	c.hurry()
	units := 50_000
	if os.Getenv("HOLDFAST_TEST_LONG") != "" {
		units = 1_000_000
	}
	var before runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	input := &numberedUnits{t: t, last: units - 1}
	report, err := inventory.ImportUnits(t.Context(), c.db, c.tenant, "arena", inventory.NDJSON, input, shopper)
	c.must(err)
	if diff := cmp.Diff(inventory.UnitImportReport{Added: int64(units), RejectedLines: []rejected{}}, report); diff != "" {
		t.Error(diff)
	}
	if grown := int64(input.most) - int64(before.HeapAlloc); grown > 8<<20 {
		t.Errorf("the import uses %d bytes more than the test before it", grown)
	}
	c.wantCounts("arena", int64(units), 0, 0)
	last, err := inventory.GetUnit(t.Context(), c.db, c.tenant, "arena", fmt.Sprintf("row-%d-seat-%d", (units-1)/1000, units-1))
	c.must(err)
	if last.Position != int64(units) {
		t.Errorf("the last unit is %+v", last)
	}
}
