package inventory_test

import (
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/internal/pg"
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

// A COMMIT in the batch that writes a decision commits nothing if the guard
// refuses a variant: here the stock was reduced after it was decided upon.
func TestGuardPrecedesCommit(t *testing.T) {
	t.Parallel()
	c := &carts{t, pgtest.New(t), uuid.New()}
	c.stock("shoe", 5)
	tx, err := c.db.Begin(t.Context())
	pgtest.Must(t, err)
	defer func() { _ = tx.Rollback(t.Context()) }()
	terms, err := inventory.Terms{}.WithDefaults()
	pgtest.Must(t, err)
	holding, err := inventory.HoldTx(t.Context(), tx, []inventory.HoldRequest{
		{TenantID: c.tenant, RequestID: uuid.New(), CartID: "a", VariantID: "shoe", Quantity: 3, Origin: shopper},
	}, terms)
	pgtest.Must(t, err)
	_, err = tx.Exec(t.Context(), `UPDATE inventory_stocks SET stock = 2`)
	pgtest.Must(t, err)
	b := &pgx.Batch{}
	holding.Queue(b)
	b.Queue(`COMMIT`)
	if err := tx.SendBatch(t.Context(), b).Close(); pg.Code(err) != "22P02" {
		t.Errorf("%v, want SQLSTATE 22P02", err)
	}
	pgtest.Must(t, tx.Rollback(t.Context()))
	c.wantStock("shoe", 5, 0)
	var holds int
	pgtest.Must(t, c.db.QueryRow(t.Context(), `SELECT count(*) FROM reservations`).Scan(&holds))
	if holds != 0 {
		t.Errorf("%d holds, want none", holds)
	}
}
