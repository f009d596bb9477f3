package inventory_test

import (
	"testing"

	"github.com/google/uuid"

	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/internal/pgtest"
)

// The guard rejects what the CHECKs would reject, so that they are never
// violated: reserved below zero, and reserved above stock.
func TestGuardPrecedesTheChecks(t *testing.T) {
	t.Parallel()
	db, log := pgtest.NewLogged(t)
	c := &carts{t, db, uuid.New()}
	c.stock("shoe", 5)
	id := c.hold("a", "shoe", 3)
	c.exec(`UPDATE inventory_stocks SET reserved = 2`)
	if _, err := c.release("a", "shoe", "cart_removed"); err == nil {
		t.Error("3 units were released of a variant with 2 reserved")
	}
	if _, err := inventory.Commit(t.Context(), c.db, c.tenant, id, shopper); err == nil {
		t.Error("3 units were committed of a variant with 2 reserved")
	}
	c.wantHold(id, "held", "")
	c.wantStock("shoe", 5, 2)
	for _, line := range log.Errors() {
		t.Errorf("the server logged: %s", line)
	}
}
