package httpapi

import (
	"strings"
	"testing"
)

// A request that comes up short waits, with its position; an offer ends the wait
// of its long poll and of its stream.
func TestWaitForStock(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	golden(t, "stock_claim", s.call(200, "PUT", "/v1/stocks/shirt", `{"stock":1,"claim_seconds":600}`))
	s.serveLanes()
	wish := func(cart string, quantity string) reply {
		return s.call(202, "POST", "/v1/carts/"+cart+"/items", `{"variant_id":"shirt","quantity":`+quantity+`,"wait_for_stock":true}`, "Prefer", "wait=10")
	}
	s.call(200, "POST", "/v1/carts/first/items", `{"variant_id":"shirt","quantity":1,"wait_for_stock":true}`, "Prefer", "wait=10")
	waits := wish("second", "1")
	golden(t, "accepted_waiting", waits)
	request := waits.text(t, "request_id")
	if body := wish("third", "1").object(t); body["status"] != "waiting" || body["position"] != 2.0 {
		t.Errorf("the third request is %v", body)
	}
	golden(t, "request_waiting", s.call(200, "GET", "/v1/requests/"+request, ""))
	golden(t, "cart_waiting", s.call(200, "GET", "/v1/carts/second", ""))
	st := s.stream(t, "/v1/requests/"+request+"/events")
	st.next()
	if e := st.next(); e.id != "waiting-1" {
		t.Errorf("the stream begins with %+v", e)
	}
	s.call(200, "DELETE", "/v1/carts/first", "")
	if body := s.call(200, "GET", "/v1/requests/"+request+"?wait=20", "").object(t); body["status"] != "done" || body["position"] != nil {
		t.Errorf("the request that was offered the unit is %v", body)
	}
	ids := st.ids()
	if len(ids) == 0 || !strings.HasPrefix(ids[len(ids)-1], "done") {
		t.Errorf("the stream ends with %v", ids)
	}
	if body := s.call(200, "DELETE", "/v1/carts/third/items/shirt", "").object(t); len(body["cancelled"].([]any)) != 1 {
		t.Errorf("the removal answers %v", body)
	}
}

func TestBadWaits(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	for _, body := range []string{
		`{"lines":[{"variant_id":"shirt","quantity":1}],"wait_for_stock":true}`,
		`{"kit_id":"set","quantity":1,"wait_for_stock":true}`,
		`{"block":"hall","unit_ids":["A1"],"wait_for_stock":true}`,
		`{"block":"hall","any_of":2,"contiguous":true,"wait_for_stock":true}`,
		`{"variant_id":"shirt","quantity":1,"wait_for_stock":"yes"}`,
	} {
		p := s.refused(invalid, "POST", "/v1/carts/c/items", body)
		if len(p.Errors) != 1 || p.Errors[0].Field != "wait_for_stock" {
			t.Errorf("%s: the problem names %+v", body, p.Errors)
		}
	}
	if n := s.count(`SELECT count(*) FROM reservation_requests`); n != 0 {
		t.Errorf("%d requests were written", n)
	}
}
