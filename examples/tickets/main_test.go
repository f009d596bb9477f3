package main

import (
	"testing"

	"github.com/holdfast/holdfast/internal/pgtest"
)

// Each buyer has one outcome, and the seats that are sold, those of the orders and
// those that have left the stock are the same.
func TestSell(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	e, err := sell(t.Context(), db)
	pgtest.Must(t, err)
	if e.orders+e.declined+e.late != buyers || e.sold == 0 || e.late == 0 {
		t.Errorf("%d orders, %d declined, %d late of %d buyers", e.orders, e.declined, e.late, buyers)
	}
	left := pgtest.Int(t, db, `SELECT stock FROM inventory_stocks WHERE reserved = 0`)
	ordered := pgtest.Int(t, db, `SELECT sum(seats)::bigint FROM ticket_orders`)
	if e.sold != ordered || e.sold+left != seats {
		t.Errorf("%d seats are sold, %d ordered, %d left of %d", e.sold, ordered, left, seats)
	}
}
