package holdfast_test

import (
	"errors"
	"testing"

	"github.com/holdfast/holdfast"
	"github.com/holdfast/holdfast/internal/pgtest"
)

// Cells.Tenant remembers where a tenant is, but not once its move has begun. It
// finds out that the tenant has left.
func TestCellsRememberTenants(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	client, err := holdfast.New(db, nil)
	pgtest.Must(t, err)
	shop, err := client.Tenant(t.Context(), "shop")
	pgtest.Must(t, err)
	cells := holdfast.Cells{"eu": client}
	become := func(state string, to *string) {
		pgtest.Exec(t, db, `UPDATE tenant_state SET state = $2, moves_to = $3 WHERE tenant_id = $1`, shop.TenantID, state, to)
	}
	found := func() error {
		_, err := cells.Tenant(t.Context(), "shop")
		return err
	}

	become("moving", new("us"))
	if err := found(); err != nil || client.Remembers("shop") {
		t.Errorf("a tenant that moves: %v, remembered: %t", err, client.Remembers("shop"))
	}
	become("active", nil)
	if err := found(); err != nil || !client.Remembers("shop") {
		t.Errorf("an active tenant: %v, remembered: %t", err, client.Remembers("shop"))
	}
	become("gone", new("us"))
	pgtest.Until(t, "the tenant is found to have left", func() bool { return errors.Is(found(), holdfast.ErrTenantMoving) })
}
