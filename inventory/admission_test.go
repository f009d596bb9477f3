package inventory_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast/holdfast/inventory"
)

func TestAnyGuarded(t *testing.T) {
	t.Parallel()
	b := newStocks(t)
	expect := func(want *inventory.Guarded) {
		t.Helper()
		got, err := inventory.AnyGuarded(t.Context(), b.pool)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%v (-want +got):\n%s", err, diff)
		}
	}
	set := func(variantID, admission string) {
		t.Helper()
		patch := inventory.StockPatch{Stock: new(int64(1)), Admission: &admission}
		if _, err := inventory.Set(t.Context(), b.pool, b.other, variantID, patch, clerk); err != nil {
			t.Fatal(err)
		}
	}
	expect(nil)
	set("shirt", inventory.AdmissionOpen)
	expect(nil)
	set("ticket", inventory.AdmissionToken)
	expect(&inventory.Guarded{TenantID: b.other, VariantID: "ticket"})
	set("ticket", inventory.AdmissionOpen)
	expect(nil)
}
