package inventory_test

import (
	"errors"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"

	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/internal/lanes"
)

type patch = inventory.StockPatch

func TestSetMakesAVariant(t *testing.T) {
	t.Parallel()
	b := newStocks(t)
	for name, c := range map[string]struct {
		patch patch
		want  stockRow
		err   error
	}{
		"stock only": {
			patch: patch{Stock: new(int64(7))},
			want:  stockRow{Stock: 7, Tracked: true, Lane: "auto"},
		},
		"everything": {
			patch: patch{new(int64(7)), new(false), new(true), new(int32(900)), new(int32(5)), new(lanes.WishHot), new("token"), nil, nil},
			want:  stockRow{7, 0, false, true, new(int32(900)), new(int32(5)), "hot", true},
		},
		"the maximum": {
			patch: patch{Stock: new(int64(inventory.MaxStock)), HoldTTLSeconds: new(int32(30 * 86400)), MaxPerCart: new(int32(inventory.MaxQuantity))},
			want:  stockRow{Stock: inventory.MaxStock, Tracked: true, HoldTTLSeconds: new(int32(30 * 86400)), MaxPerCart: new(int32(inventory.MaxQuantity)), Lane: "auto"},
		},
		"none, cleared": {
			patch: patch{Stock: new(int64(0)), HoldTTLSeconds: new(int32(0)), MaxPerCart: new(int32(0))},
			want:  stockRow{Tracked: true, Lane: "auto"},
		},
		"digital without stock":   {patch: patch{Tracked: new(false)}, want: stockRow{Lane: "auto"}},
		"tracked without stock":   {patch: patch{Tracked: new(true)}, err: inventory.ErrStockRequired},
		"backorder without stock": {patch: patch{Backorder: new(true)}, err: inventory.ErrStockRequired},
		"nothing":                 {err: inventory.ErrStockRequired},
	} {
		t.Run(name, func(t *testing.T) {
			stock, err := inventory.Set(t.Context(), b.pool, b.tenant, name, c.patch, clerk)
			row, there := b.rows(t)[name]
			if !errors.Is(err, c.err) || there != (c.err == nil) {
				t.Fatalf("error %v, row there: %v", err, there)
			}
			if c.err != nil {
				if h := b.history(t, name); len(h) != 0 {
					t.Errorf("recorded %v", h)
				}
				return
			}
			if diff := cmp.Diff(c.want, row); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff([]change{{"stock.set", "", image(t, name, c.want)}}, b.history(t, name)); diff != "" {
				t.Error(diff)
			}
			b.wantLike(t, stock)
		})
	}
}

// wantLike fails the test unless a verb returned the same as Get.
func (b *stockBundle) wantLike(t *testing.T, stock inventory.Stock) {
	t.Helper()
	got, err := inventory.Get(t.Context(), b.pool, b.tenant, stock.VariantID)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(got, stock); diff != "" {
		t.Errorf("the verb's result (+) differs from the stored row (-): %s", diff)
	}
}

// The cases combine the no-oversell rule with a change of stock, backorder or
// tracked.
func TestSetChangesAVariant(t *testing.T) {
	t.Parallel()
	b := newStocks(t)
	plain := stockRow{Stock: 10, Reserved: 4, Tracked: true, Lane: "auto"}
	short := stockRow{Stock: 3, Reserved: 9, Tracked: true, Backorder: true, Lane: "auto"}
	owing := stockRow{Stock: -5, Tracked: true, Backorder: true, Lane: "auto"}
	digital := stockRow{Stock: 0, Reserved: 2, Lane: "auto"}
	full := stockRow{10, 4, true, false, new(int32(60)), new(int32(2)), "hot", true}
	with := func(r stockRow, change func(*stockRow)) stockRow { change(&r); return r }

	for name, c := range map[string]struct {
		before  stockRow
		patch   patch
		want    stockRow
		refused bool
	}{
		"raise":                         {before: plain, patch: patch{Stock: new(int64(11))}, want: with(plain, func(r *stockRow) { r.Stock = 11 })},
		"down to reserved":              {before: plain, patch: patch{Stock: new(int64(4))}, want: with(plain, func(r *stockRow) { r.Stock = 4 })},
		"below reserved":                {before: plain, patch: patch{Stock: new(int64(3))}, refused: true},
		"below, backorder on":           {before: plain, patch: patch{Stock: new(int64(3)), Backorder: new(true)}, want: with(plain, func(r *stockRow) { r.Stock, r.Backorder = 3, true })},
		"below, tracking off":           {before: plain, patch: patch{Stock: new(int64(0)), Tracked: new(false)}, want: with(plain, func(r *stockRow) { r.Stock, r.Tracked = 0, false })},
		"backorder off, enough":         {before: with(plain, func(r *stockRow) { r.Backorder = true }), patch: patch{Backorder: new(false)}, want: plain},
		"backorder off, short":          {before: short, patch: patch{Backorder: new(false)}, refused: true},
		"backorder off, restock":        {before: short, patch: patch{Backorder: new(false), Stock: new(int64(9))}, want: with(short, func(r *stockRow) { r.Backorder, r.Stock = false, 9 })},
		"backorder, still short":        {before: short, patch: patch{Stock: new(int64(0))}, want: with(short, func(r *stockRow) { r.Stock = 0 })},
		"backorder off, below 0":        {before: owing, patch: patch{Backorder: new(false)}, refused: true},
		"below 0, other field":          {before: owing, patch: patch{Lane: new(lanes.WishHot)}, want: with(owing, func(r *stockRow) { r.Lane = "hot" })},
		"owing, both":                   {before: owing, patch: patch{Backorder: new(false), Tracked: new(false)}, want: with(owing, func(r *stockRow) { r.Backorder, r.Tracked = false, false })},
		"tracking on, short":            {before: digital, patch: patch{Tracked: new(true)}, refused: true},
		"tracking on, stocked":          {before: digital, patch: patch{Tracked: new(true), Stock: new(int64(2))}, want: with(digital, func(r *stockRow) { r.Tracked, r.Stock = true, 2 })},
		"tracking on, backorder":        {before: digital, patch: patch{Tracked: new(true), Backorder: new(true)}, want: with(digital, func(r *stockRow) { r.Tracked, r.Backorder = true, true })},
		"tracking off, held":            {before: plain, patch: patch{Tracked: new(false)}, want: with(plain, func(r *stockRow) { r.Tracked = false })},
		"fields left out are kept":      {before: full, patch: patch{Stock: new(int64(5))}, want: with(full, func(r *stockRow) { r.Stock = 5 })},
		"0 clears":                      {before: full, patch: patch{HoldTTLSeconds: new(int32(0)), MaxPerCart: new(int32(0))}, want: with(full, func(r *stockRow) { r.HoldTTLSeconds, r.MaxPerCart = nil, nil })},
		"nothing":                       {before: full, want: full},
		"token":                         {before: plain, patch: patch{Admission: new("token")}, want: with(plain, func(r *stockRow) { r.Token = true })},
		"open again":                    {before: full, patch: patch{Admission: new("open")}, want: with(full, func(r *stockRow) { r.Token = false })},
		"values that are set already":   {before: full, patch: patch{Stock: new(int64(10)), MaxPerCart: new(int32(2)), Lane: new(lanes.WishHot), Admission: new("token")}, want: full},
		"cleared but never set":         {before: plain, patch: patch{HoldTTLSeconds: new(int32(0))}, want: plain},
		"rejected, so no field changes": {before: plain, patch: patch{Stock: new(int64(3)), Lane: new(lanes.WishHot), MaxPerCart: new(int32(1)), Admission: new("token")}, refused: true},
	} {
		t.Run(name, func(t *testing.T) {
			b.put(t, name, c.before)
			if c.refused {
				c.want = c.before
			}
			b.wantSet(t, name, c.before, c.patch, c.want, c.refused)
		})
	}
}

// wantSet sets a variant and checks its row and its history.
func (b *stockBundle) wantSet(t *testing.T, variantID string, before stockRow, p patch, want stockRow, refused bool) {
	t.Helper()
	was, err := inventory.Get(t.Context(), b.pool, b.tenant, variantID)
	if err != nil {
		t.Fatal(err)
	}
	var history []change
	if !cmp.Equal(want, before) {
		history = []change{{"stock.set", image(t, variantID, before), image(t, variantID, want)}}
	}
	stock, err := inventory.Set(t.Context(), b.pool, b.tenant, variantID, p, clerk)
	if errors.Is(err, inventory.ErrBelowReserved) != refused || !refused && err != nil {
		t.Fatalf("got %v", err)
	}
	if diff := cmp.Diff(want, b.rows(t)[variantID]); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(history, b.history(t, variantID)); diff != "" {
		t.Error(diff)
	}
	if refused {
		return
	}
	b.wantLike(t, stock)
	if stock.UpdatedAt.After(was.UpdatedAt) != (history != nil) || !stock.CreatedAt.Equal(was.CreatedAt) {
		t.Errorf("times %v %v, were %v %v", stock.CreatedAt, stock.UpdatedAt, was.CreatedAt, was.UpdatedAt)
	}
}

func TestSetRefusesBadInput(t *testing.T) {
	t.Parallel()
	b := newStocks(t)
	ok := patch{Stock: new(int64(1))}
	for name, c := range map[string]struct {
		id    string
		patch patch
		field string
	}{
		"no id":                   {"", ok, "variant_id"},
		"NUL in id":               {"a\x00", ok, "variant_id"},
		"stock below 0":           {"v", patch{Stock: new(int64(-1))}, "stock"},
		"stock above the maximum": {"v", patch{Stock: new(int64(inventory.MaxStock + 1))}, "stock"},
		"stock of all bits":       {"v", patch{Stock: new(int64(math.MinInt64))}, "stock"},
		"TTL below 0":             {"v", patch{Stock: new(int64(1)), HoldTTLSeconds: new(int32(-1))}, "hold_ttl_seconds"},
		"TTL too long":            {"v", patch{Stock: new(int64(1)), HoldTTLSeconds: new(int32(30*86400 + 1))}, "hold_ttl_seconds"},
		"max below 0":             {"v", patch{Stock: new(int64(1)), MaxPerCart: new(int32(-1))}, "max_per_cart"},
		"max too large":           {"v", patch{Stock: new(int64(1)), MaxPerCart: new(int32(inventory.MaxQuantity + 1))}, "max_per_cart"},
		"unknown lane":            {"v", patch{Stock: new(int64(1)), Lane: new(lanes.Wish("HOT"))}, "lane"},
		"empty lane":              {"v", patch{Stock: new(int64(1)), Lane: new(lanes.Wish(""))}, "lane"},
		"unknown admission":       {"v", patch{Stock: new(int64(1)), Admission: new("closed")}, "admission"},
		"empty admission":         {"v", patch{Stock: new(int64(1)), Admission: new("")}, "admission"},
	} {
		if _, err := inventory.Set(t.Context(), b.pool, b.tenant, c.id, c.patch, clerk); invalidField(err) != c.field {
			t.Errorf("%s: got %v", name, err)
		}
	}
	if rows := b.rows(t); len(rows) != 0 {
		t.Errorf("rows were made: %v", rows)
	}
}

// After a rejection the caller's transaction is usable.
func TestSetTxRefusesWithoutSpoilingTheTransaction(t *testing.T) {
	t.Parallel()
	b := newStocks(t)
	b.put(t, "v", stockRow{Stock: 10, Reserved: 4, Tracked: true})
	tx := b.begin(t)
	if _, err := inventory.SetTx(t.Context(), tx, b.tenant, "v", patch{Stock: new(int64(3))}, clerk); !errors.Is(err, inventory.ErrBelowReserved) {
		t.Fatal(err)
	}
	if _, err := inventory.SetTx(t.Context(), tx, b.tenant, "w", patch{}, clerk); !errors.Is(err, inventory.ErrStockRequired) {
		t.Fatal(err)
	}
	if _, err := inventory.SetTx(t.Context(), tx, b.tenant, "v", patch{Stock: new(int64(5))}, clerk); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := b.rows(t)["v"].Stock; got != 5 {
		t.Errorf("stock %d", got)
	}
}

// A variant with the same id of another tenant is neither read nor changed.
func TestSetKeepsTenantsApart(t *testing.T) {
	t.Parallel()
	b := newStocks(t)
	b.put(t, "v", stockRow{Stock: 10, Reserved: 4, Tracked: true})
	if _, err := inventory.Set(t.Context(), b.pool, b.other, "v", patch{Lane: new(lanes.WishHot)}, clerk); !errors.Is(err, inventory.ErrStockRequired) {
		t.Errorf("got %v", err)
	}
	if _, err := inventory.Set(t.Context(), b.pool, b.other, "v", patch{Stock: new(int64(0))}, clerk); err != nil {
		t.Error(err)
	}
	if got := b.rows(t)["v"].Stock; got != 10 {
		t.Errorf("stock %d", got)
	}
	if h := b.history(t, "v"); len(h) != 0 {
		t.Errorf("recorded %v", h)
	}
}

// Many concurrent calls set one new variant. One of them makes it. The record
// of each change starts from the result of the previous one.
func TestSetByManyAtOnce(t *testing.T) {
	t.Parallel()
	b := newStocks(t)
	const callers = 30
	var g errgroup.Group
	for i := range callers {
		g.Go(func() error {
			_, err := inventory.Set(t.Context(), b.pool, b.tenant, "v", patch{Stock: new(int64(i))}, clerk)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	b.wantChained(t, "v", callers)
}

// wantChained fails the test unless a variant's history begins with its
// creation, has no gap and ends with the values of its row.
func (b *stockBundle) wantChained(t *testing.T, variantID string, changes int) {
	t.Helper()
	history := b.history(t, variantID)
	if len(history) != changes {
		t.Errorf("%s: %d changes are recorded, want %d", variantID, len(history), changes)
	}
	was := ""
	for i, c := range history {
		if c.Before != was {
			t.Errorf("%s: change %d begins with %s after %s", variantID, i, c.Before, was)
		}
		was = c.After
	}
	if now := image(t, variantID, b.rows(t)[variantID]); was != now {
		t.Errorf("%s: the history ends with %s, the row is %s", variantID, was, now)
	}
}
