package signals_test

import (
	"fmt"
	"log/slog"
	"sync"
	"testing"

	"github.com/google/uuid"

	"github.com/holdfast/holdfast/internal/admission"
	"github.com/holdfast/holdfast/internal/lanes"
	"github.com/holdfast/holdfast/internal/requestrows"
	"github.com/holdfast/holdfast/internal/signals"
	"github.com/holdfast/holdfast/internal/testkit"
)

// Signals are written once per window, and not while no request is admitted.
func TestSignals(t *testing.T) {
	t.Parallel()
	w := testkit.New(t, lanes.Normal)
	w.Stock("shoe", 1000)
	counts := signals.New(w.DB, slog.New(slog.DiscardHandler))
	in := w.Intake(admission.IntakeConfig{Observe: counts.Observe})
	var callers sync.WaitGroup
	for i := range 40 {
		callers.Go(func() {
			variant := "shoe"
			if i%4 == 0 {
				variant = fmt.Sprint("v", i)
			}
			if _, err := in.Submit(t.Context(), requestrows.Submission{TenantID: w.Tenant, CartID: fmt.Sprint(i), VariantID: variant, Quantity: 1}); err != nil {
				t.Error(err)
			}
		})
	}
	callers.Wait()
	if err := counts.RecordOnce(t.Context()); err != nil {
		t.Fatal(err)
	}
	share := func(tenant uuid.UUID, variant string) int64 {
		return w.Int(`
			SELECT coalesce(max(round(1000 * s.rate / total.rate)), 0)::bigint
			FROM hot_signals total
			LEFT JOIN hot_signals s ON s.tenant_id = $1 AND s.variant_id = $2
			WHERE total.tenant_id = $3`, tenant, variant, uuid.Nil)
	}
	if shoe, sock, tenant := share(w.Tenant, "shoe"), share(w.Tenant, "v4"), share(w.Tenant, ""); shoe != 750 || sock != 25 || tenant != 1000 {
		t.Errorf("of 1,000 requests %d shoes are counted, %d v4, %d of the tenant, want 750, 25 and all", shoe, sock, tenant)
	}
	if n := w.Int(`SELECT count(*) FROM hot_signals`); n != 13 {
		t.Errorf("%d signals, want 11 variants, the tenant and all", n)
	}
	w.Exec(`DELETE FROM hot_signals`)
	if err := counts.RecordOnce(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := w.Int(`SELECT count(*) FROM hot_signals`); n != 0 {
		t.Errorf("%d rows of a window without requests", n)
	}
}
