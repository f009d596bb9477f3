package inventory_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/inventory"
)

func TestFirstRequiringToken(t *testing.T) {
	t.Parallel()
	b := newStocks(t)
	expect := func(want *inventory.Ref) {
		t.Helper()
		got, err := inventory.FirstRequiringToken(t.Context(), b.pool)
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
	expect(&inventory.Ref{TenantID: b.other, VariantID: "ticket"})
	set("ticket", inventory.AdmissionOpen)
	expect(nil)
}

// A token is required only for a variant of the tenant whose admission is
// "token".
func TestQueueTokenRequired(t *testing.T) {
	t.Parallel()
	b := newStocks(t)
	for variantID, admission := range map[string]string{"ticket": inventory.AdmissionToken, "shirt": inventory.AdmissionOpen} {
		patch := inventory.StockPatch{Stock: new(int64(9)), Admission: &admission}
		if _, err := inventory.Set(t.Context(), b.pool, b.other, variantID, patch, clerk); err != nil {
			t.Fatal(err)
		}
	}
	batch := &pgx.Batch{}
	required := inventory.QueueTokenRequired(batch, []inventory.HoldRequest{
		{TenantID: b.other, VariantID: "ticket"}, {TenantID: b.other, VariantID: "shirt"},
		{TenantID: b.other, VariantID: "ticket"}, {TenantID: uuid.New(), VariantID: "ticket"},
	})
	if err := b.pool.SendBatch(t.Context(), batch).Close(); err != nil {
		t.Fatal(err)
	}
	for v, token := range required {
		if want := v == (inventory.Ref{TenantID: b.other, VariantID: "ticket"}); token != want {
			t.Errorf("%v: a token is required: %t, want %t", v, token, want)
		}
	}
	if len(required) != 3 {
		t.Errorf("%v, want 3 variants", required)
	}
}
