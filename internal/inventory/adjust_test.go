package inventory_test

import (
	"errors"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"

	"github.com/holdfast/holdfast/internal/inventory"
)

func TestAdjust(t *testing.T) {
	t.Parallel()
	b := newStocks(t)
	const most = inventory.MaxStock
	plain := stockRow{Stock: 10, Reserved: 4, Tracked: true, Lane: "auto"}
	backorder := stockRow{Stock: 3, Reserved: 9, Tracked: true, Backorder: true, Lane: "auto"}
	owing := stockRow{Stock: -5, Reserved: 1, Tracked: true, Backorder: true, Lane: "auto"}
	digital := stockRow{Stock: 2, Reserved: 3, Lane: "auto"}
	full := stockRow{Stock: most - 1, Tracked: true, Lane: "auto"}

	for name, c := range map[string]struct {
		before stockRow
		delta  int64
		after  int64 // if there is no error
		err    error
		field  string
	}{
		"up":                            {before: plain, delta: 5, after: 15},
		"down to reserved":              {before: plain, delta: -6, after: 4},
		"below reserved":                {before: plain, delta: -7, err: inventory.ErrBelowReserved},
		"below 0":                       {before: plain, delta: -11, err: inventory.ErrBelowReserved},
		"backorder, below":              {before: backorder, delta: -3, after: 0},
		"backorder, below 0":            {before: backorder, delta: -4, field: "delta"},
		"below 0, up but still below 0": {before: owing, delta: 3, after: -2},
		"below 0, further down":         {before: owing, delta: -1, field: "delta"},
		"digital, down":                 {before: digital, delta: -2, after: 0},
		"digital, below 0":              {before: digital, delta: -3, field: "delta"},
		"to the maximum":                {before: full, delta: 1, after: most},
		"above the maximum":             {before: full, delta: 2, field: "delta"},
		"by the maximum, above it":      {before: full, delta: most, field: "delta"},
		"by the maximum, down":          {before: full, delta: -most, err: inventory.ErrBelowReserved},
		"by more than the maximum":      {before: plain, delta: most + 1, field: "delta"},
		"by all bits":                   {before: plain, delta: math.MinInt64, field: "delta"},
		"by all other bits":             {before: plain, delta: math.MaxInt64, field: "delta"},
		"by 0":                          {before: plain, delta: 0, field: "delta"},
	} {
		t.Run(name, func(t *testing.T) {
			b.put(t, name, c.before)
			b.hold(t, name, 1, -1)
			stock, err := inventory.Adjust(t.Context(), b.pool, b.tenant, name, c.delta, clerk)
			if invalidField(err) != c.field || c.field == "" && !errors.Is(err, c.err) {
				t.Fatalf("got %v", err)
			}
			want, history := c.before, []change(nil)
			if err == nil {
				want.Stock = c.after
				history = []change{{"stock.adjusted", image(t, name, c.before), image(t, name, want)}}
				b.wantLike(t, stock)
			}
			if diff := cmp.Diff(want, b.rows(t)[name]); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(history, b.history(t, name)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestAdjustUnknownVariants(t *testing.T) {
	t.Parallel()
	b := newStocks(t)
	b.put(t, "v", stockRow{Stock: 10, Tracked: true})
	if _, err := inventory.Adjust(t.Context(), b.pool, b.tenant, "w", 1, clerk); !errors.Is(err, inventory.ErrUnknownVariant) {
		t.Errorf("unknown: %v", err)
	}
	if _, err := inventory.Adjust(t.Context(), b.pool, b.other, "v", 1, clerk); !errors.Is(err, inventory.ErrUnknownVariant) {
		t.Errorf("another tenant's: %v", err)
	}
	if _, err := inventory.Adjust(t.Context(), b.pool, b.tenant, "v\x00", 1, clerk); invalidField(err) != "variant_id" {
		t.Errorf("no id: %v", err)
	}
	if rows := b.rows(t); len(rows) != 1 || rows["v"].Stock != 10 {
		t.Errorf("rows %v", rows)
	}
}

// After a rejection the caller's transaction is usable.
func TestAdjustTxRefusesWithoutSpoilingTheTransaction(t *testing.T) {
	t.Parallel()
	b := newStocks(t)
	b.put(t, "v", stockRow{Stock: 10, Reserved: 4, Tracked: true})
	tx := b.begin(t)
	if _, err := inventory.AdjustTx(t.Context(), tx, b.tenant, "v", -7, clerk); !errors.Is(err, inventory.ErrBelowReserved) {
		t.Fatal(err)
	}
	if _, err := inventory.AdjustTx(t.Context(), tx, b.tenant, "v", -6, clerk); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := b.rows(t)["v"].Stock; got != 4 {
		t.Errorf("stock %d", got)
	}
}

// Many calls take one unit each from a stock with fewer units. The number that
// succeeds is the number of units that are not reserved.
func TestAdjustByManyAtOnce(t *testing.T) {
	t.Parallel()
	b := newStocks(t)
	b.put(t, "v", stockRow{Stock: 20, Reserved: 5, Tracked: true})
	const callers = 40
	results := make([]error, callers)
	var g errgroup.Group
	for i := range results {
		g.Go(func() error {
			_, results[i] = inventory.Adjust(t.Context(), b.pool, b.tenant, "v", -1, clerk)
			return nil
		})
	}
	_ = g.Wait()
	taken := 0
	for _, err := range results {
		switch {
		case err == nil:
			taken++
		case !errors.Is(err, inventory.ErrBelowReserved):
			t.Error(err)
		}
	}
	if row := b.rows(t)["v"]; taken != 15 || row.Stock != 5 {
		t.Errorf("%d units were taken, the stock is %d", taken, row.Stock)
	}
	first := stockRow{Stock: 20, Reserved: 5, Tracked: true, Lane: "auto"}
	history := b.history(t, "v")
	if len(history) != 15 || history[0].Before != image(t, "v", first) {
		t.Errorf("%d changes, first %v", len(history), history)
	}
	for i := 1; i < len(history); i++ {
		if history[i].Before != history[i-1].After {
			t.Errorf("change %d begins with %s after %s", i, history[i].Before, history[i-1].After)
		}
	}
}
