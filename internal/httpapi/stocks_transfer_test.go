package httpapi

import (
	"fmt"
	"sync"
	"testing"
)

func TestTransferStock(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.stock("berlin", `{"stock":5}`)
	s.stock("paris", `{"stock":1}`)
	s.block("hall", 2)
	s.wantReasons([]string{s.reasonOf("c", "berlin", 2)}, "done")
	golden(t, "transfer_stock", s.call(200, "POST", "/v1/stocks/transfer", `{"from":"berlin","to":"paris","quantity":2,"reason":"rebalance"}`))
	golden(t, "transfer_too_many", s.call(409, "POST", "/v1/stocks/transfer", `{"from":"berlin","to":"paris","quantity":2}`))
	s.refused(notFound, "POST", "/v1/stocks/transfer", `{"from":"berlin","to":"rome","quantity":1}`)
	s.refused(notFound, "POST", "/v1/stocks/transfer", `{"from":"rome","to":"berlin","quantity":1}`)
	for _, tc := range []struct{ body, field string }{
		{`{"from":"berlin","to":"berlin","quantity":1}`, "to"},
		{`{"from":"berlin","to":"paris","quantity":0}`, "quantity"},
		{`{"from":"berlin","to":"hall","quantity":1}`, "to"},
		{`{"from":"hall","to":"berlin","quantity":1}`, "from"},
		{`{"to":"berlin","quantity":1}`, "from"},
	} {
		if p := s.refused(invalid, "POST", "/v1/stocks/transfer", tc.body); p.Errors[0].Field != tc.field {
			t.Errorf("%s: the field is %s, want %s", tc.body, p.Errors[0].Field, tc.field)
		}
	}
	if n := s.count(`SELECT sum(stock) FROM inventory_stocks WHERE NOT named_units`); n != 6 {
		t.Errorf("there are %d units, want 6", n)
	}
	if n := s.count(`SELECT count(*) FROM audit_log WHERE action = 'stock.adjusted' AND reason = 'rebalance'`); n != 2 {
		t.Errorf("%d audit rows, want 2", n)
	}
}

// Transfers back and forth do not deadlock, and lose no unit.
func TestTransferConcurrently(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.stock("a", `{"stock":50}`)
	s.stock("b", `{"stock":50}`)
	var all sync.WaitGroup
	for i := range 32 {
		all.Go(func() {
			from, to := "a", "b"
			if i%2 == 0 {
				from, to = to, from
			}
			s.call(200, "POST", "/v1/stocks/transfer", fmt.Sprintf(`{"from":%q,"to":%q,"quantity":1}`, from, to))
		})
	}
	all.Wait()
	if n := s.count(`SELECT sum(stock) FROM inventory_stocks`); n != 100 {
		t.Errorf("there are %d units, want 100", n)
	}
}

func TestDeleteStock(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.stock("shirt", `{"stock":5,"lane":"hot","max_per_cart":3}`)
	s.block("hall", 2)
	s.wantReasons([]string{s.reasonOf("c", "shirt", 2)}, "done")
	s.refused(belowReserved, "DELETE", "/v1/stocks/shirt", "")
	s.call(200, "DELETE", "/v1/carts/c", "")
	golden(t, "delete_stock", s.call(200, "DELETE", "/v1/stocks/shirt", ""))
	s.refused(notFound, "GET", "/v1/stocks/shirt", "")
	s.refused(notFound, "DELETE", "/v1/stocks/shirt", "")
	s.wantReasons([]string{s.reasonOf("c", "shirt", 1)}, "unknown_variant")
	s.call(200, "DELETE", "/v1/stocks/hall", "")
	if n := s.count(`SELECT count(*) FROM postings`); n != 0 {
		t.Errorf("%d units of the block are left", n)
	}
	s.stock("shirt", `{"stock":1}`)
	stock := s.call(200, "GET", "/v1/stocks/shirt", "").object(t)
	if stock["max_per_cart"] != nil || fmt.Sprint(stock["stock"]) != "1" {
		t.Errorf("the new stock is %v", stock)
	}
	s.wantReasons([]string{s.reasonOf("c", "shirt", 1), s.reasonOf("c", "shirt", 1)}, "done out_of_stock")
	if n := s.count(`SELECT count(*) FROM audit_log WHERE action = 'stock.deleted' AND before->>'variant_id' IN ('shirt', 'hall')`); n != 2 {
		t.Errorf("%d deletions are recorded, want 2", n)
	}
}
