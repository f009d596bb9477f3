package cells

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/internal/tenants"
)

// A tenant that is active in the new cell is not overwritten by what comes late: an
// attempt whose commit was not answered and is repeated, or another mover.
func TestLateMover(t *testing.T) {
	t.Parallel()
	ctx, eu, us := t.Context(), pgtest.New(t), pgtest.New(t)
	shop, err := tenants.Ensure(ctx, eu, "shop")
	pgtest.Must(t, err)
	_, err = eu.Exec(ctx, `INSERT INTO inventory_stocks (tenant_id, variant_id, stock) VALUES ($1, 'shirt', 5)`, shop.TenantID)
	pgtest.Must(t, err)
	m := &mover{MoveConfig: MoveConfig{WaitMax: 5 * time.Minute, PauseMax: 2 * time.Minute, Linger: time.Millisecond}}
	arrived := false
	m.After = func(step string) error {
		if step == "lingered" && pgtest.Int(t, eu, `SELECT stock FROM inventory_stocks`) != 5 {
			t.Error("what calls under way read is deleted before they end")
		}
		if step != "switched" {
			return nil
		}
		arrived = true
		_, err := us.Exec(ctx, `UPDATE inventory_stocks SET stock = 3`)
		pgtest.Must(t, err)
		for what, again := range map[string]func(context.Context) error{
			"the last transaction": m.activate,
			"a comparison":         m.repairAll,
			"a round":              func(ctx context.Context) error { _, err := m.round(ctx, "copied"); return err },
		} {
			if err := again(ctx); !errors.Is(err, errArrived) {
				t.Errorf("%s after the tenant has arrived: %v", what, err)
			}
		}
		if err := m.change(ctx, moveSQL); err == nil {
			t.Error("a tenant that is gone begins to move again")
		}
		if err := m.activateSoon(ctx); err != nil {
			t.Errorf("a commit that was not answered: %v", err)
		}
		return nil
	}
	pgtest.Must(t, m.find(ctx, []Cell{{Name: "eu", Pool: eu}, {Name: "us", Pool: us}}, "shop", "us"))
	pgtest.Must(t, m.run(ctx))
	report, err := Move(ctx, []Cell{{Name: "eu", Pool: eu}, {Name: "us", Pool: us}}, "shop", "us", MoveConfig{})
	if err != nil || report.From != "us" || report.Copied != 0 {
		t.Errorf("a move that is finished: %+v, %v", report, err)
	}
	if stock := pgtest.Int(t, us, `SELECT stock FROM inventory_stocks`); stock != 3 || !arrived {
		t.Errorf("the stock is %d, want 3", stock)
	}
}
