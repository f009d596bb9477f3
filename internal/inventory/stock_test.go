package inventory_test

import (
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/internal/pgtest"
)

func TestValidateID(t *testing.T) {
	t.Parallel()
	for _, id := range []string{"v", "rolls/buns", "/v", "v/", ".v", "v..", "./", "a/../b", " ", "'; DROP TABLE x", "ä\u0301", "🥐", strings.Repeat("ü", 128), "\u200b", "\ufffd"} {
		if err := inventory.ValidateID("cart_id", id); err != nil {
			t.Errorf("%q: %v", id, err)
		}
	}
	for _, id := range []string{"", ".", "..", "...", strings.Repeat(".", 128), "/", "//", "a\x00", "a\n", "\u007f", "\u0085", "a\xff", "\xed\xa0\x80", strings.Repeat("ü", 129), strings.Repeat("a", 1<<20)} {
		if err := inventory.ValidateID("cart_id", id); invalidField(err) != "cart_id" || !strings.HasPrefix(err.Error(), "cart_id: must") {
			t.Errorf("%.20q: got %v", id, err)
		}
	}
}

// stockModel is a model of the documented behaviour of a variant.
type stockModel struct {
	there              bool
	stock, reserved    int64
	tracked, backorder bool
}

func (m stockModel) allowed() bool { return !m.tracked || m.backorder || m.stock >= m.reserved }

func (m stockModel) set(p patch) (stockModel, error) {
	if !m.there {
		if p.Stock == nil && (p.Tracked == nil || *p.Tracked) {
			return m, inventory.ErrStockRequired
		}
		m = stockModel{there: true, tracked: true}
	}
	after := m
	if p.Stock != nil {
		after.stock = *p.Stock
	}
	if p.Tracked != nil {
		after.tracked = *p.Tracked
	}
	if p.Backorder != nil {
		after.backorder = *p.Backorder
	}
	if !after.allowed() {
		return m, inventory.ErrBelowReserved
	}
	return after, nil
}

func (m stockModel) adjust(delta int64) (stockModel, error) {
	after := m
	after.stock += delta
	switch {
	case !m.there:
		return m, inventory.ErrUnknownVariant
	case !after.allowed():
		return m, inventory.ErrBelowReserved
	case delta < 0 && after.stock < 0:
		return m, errors.ErrUnsupported // it represents an InvalidError
	}
	return after, nil
}

// modelled returns a row in the model's form, and the number of recorded
// changes.
func (b *stockBundle) modelled(t *testing.T, variantID string) (m stockModel, recorded int) {
	t.Helper()
	err := b.pool.QueryRow(t.Context(), `
		SELECT s.stock IS NOT NULL, COALESCE(s.stock, 0), COALESCE(s.reserved, 0), COALESCE(s.tracked, false), COALESCE(s.backorder, false), n.recorded
		FROM (SELECT count(*) AS recorded FROM audit_log WHERE tenant_id = $1 AND target_id = $3) AS n
		LEFT JOIN inventory_stocks AS s ON s.tenant_id = $1 AND s.variant_id = $2`,
		b.tenant, variantID, audit.TargetOf(b.tenant, "stock", variantID),
	).Scan(&m.there, &m.stock, &m.reserved, &m.tracked, &m.backorder, &recorded)
	if err != nil {
		t.Fatal(err)
	}
	return m, recorded
}

// Random sets, adjustments, holds and backordered checkouts return what the
// model returns, and the row and its history match the model.
func TestStockAgainstModel(t *testing.T) {
	t.Parallel()
	b := newStocks(t)
	round := 0
	rapid.Check(t, pgtest.Fewer(func(rt *rapid.T) {
		round++
		variantID := "v" + strings.Repeat("'", round%100) + string(rune('a'+round/100))
		model, changes := stockModel{}, 0
		units := rapid.Int64Range(-6, 12)
		expect := func(what string, after stockModel, want, got error) {
			if want == errors.ErrUnsupported && invalidField(got) == "" || want != errors.ErrUnsupported && !errors.Is(got, want) {
				rt.Fatalf("%s on %+v: got %v, want %v", what, model, got, want)
			}
			model = after
			if row, recorded := b.modelled(t, variantID); row != model || recorded != changes {
				rt.Fatalf("%s: the row is %+v, want %+v; %d changes are recorded, want %d", what, row, model, recorded, changes)
			}
		}
		count := func(before, after stockModel) {
			if before != after {
				changes++
			}
		}
		rt.Repeat(map[string]func(*rapid.T){
			"set": func(rt *rapid.T) {
				p := patch{
					Stock:     rapid.Ptr(rapid.Int64Range(0, 12), true).Draw(rt, "stock"),
					Tracked:   rapid.Ptr(rapid.Bool(), true).Draw(rt, "tracked"),
					Backorder: rapid.Ptr(rapid.Bool(), true).Draw(rt, "backorder"),
				}
				after, want := model.set(p)
				count(model, after)
				_, got := inventory.Set(t.Context(), b.pool, b.tenant, variantID, p, clerk)
				expect("set", after, want, got)
			},
			"adjust": func(rt *rapid.T) {
				delta := units.Filter(func(d int64) bool { return d != 0 }).Draw(rt, "delta")
				after, want := model.adjust(delta)
				count(model, after)
				_, got := inventory.Adjust(t.Context(), b.pool, b.tenant, variantID, delta, clerk)
				expect("adjust", after, want, got)
			},
			"hold or check out": func(rt *rapid.T) {
				after := model
				after.reserved = max(0, model.reserved+units.Draw(rt, "reserved"))
				if model.backorder && rapid.Bool().Draw(rt, "check out") {
					after.stock -= after.reserved
					after.reserved = 0
				}
				if !model.there || !after.allowed() {
					return
				}
				b.exec(t, `UPDATE inventory_stocks SET stock = $2, reserved = $3 WHERE variant_id = $1`, variantID, after.stock, after.reserved)
				model = after
			},
		})
	}))
}
