package httpapi

import (
	"fmt"
	"strings"
	"sync"
	"testing"
)

func TestGroups(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.refused(notFound, "GET", "/v1/groups/shirt", "")
	for _, tc := range []struct{ path, body, field string }{
		{"/v1/groups/shirt", `{"max_per_customer":-1}`, "max_per_customer"},
		{"/v1/groups/shirt", `{"max_per_customer":1000001}`, "max_per_customer"},
		{"/v1/groups/shirt", `{"customer_period_seconds":60}`, "customer_period_seconds"},
		{"/v1/stocks/m", `{"stock":1,"group":".."}`, "group"},
		{"/v1/stocks/m", `{"stock":1,"group":7}`, "group"},
	} {
		if p := s.refused(invalid, "PUT", tc.path, tc.body); p.Errors[0].Field != tc.field {
			t.Errorf("%s: the field is %q, want %q", tc.body, p.Errors[0].Field, tc.field)
		}
	}
	s.stock("m@berlin", `{"stock":5,"group":"shirt"}`)
	s.stock("m@paris", `{"stock":7,"group":"shirt"}`)
	s.stock("mug", `{"stock":9}`)
	s.held("c", "m@paris", 2)
	golden(t, "put_group", s.call(200, "PUT", "/v1/groups/shirt", `{"max_per_customer":3,"customer_period_seconds":3600}`))
	s.call(200, "PUT", "/v1/groups/shirt", `{"max_per_customer":3}`)
	golden(t, "group", s.call(200, "GET", "/v1/groups/shirt", ""))
	if n := s.count(`SELECT count(*) FROM audit_log WHERE action = 'group.set'`); n != 1 {
		t.Errorf("%d rows record the group, want 1", n)
	}
	var listed []any
	for cursor := ""; ; {
		page := s.call(200, "GET", "/v1/stocks?group=shirt&limit=1"+cursor, "").object(t)
		for _, item := range page["items"].([]any) {
			listed = append(listed, item.(map[string]any)["variant_id"])
		}
		if page["next_cursor"] == nil {
			break
		}
		cursor = "&cursor=" + page["next_cursor"].(string)
	}
	if got := fmt.Sprint(listed); got != "[m@berlin m@paris]" {
		t.Errorf("the group lists %s", got)
	}
	s.wantReasons([]string{s.reasonOf("c", "m@berlin", 2), s.reasonOf("c", "m@berlin", 1), s.reasonOf("c", "mug", 9), s.reasonOf("d", "m@berlin", 3)},
		"limit_exceeded done done done")
	s.call(200, "PUT", "/v1/stocks/m@paris", `{"group":null}`)
	s.wantReasons([]string{s.reasonOf("c", "m@paris", 5), s.reasonOf("c", "m@berlin", 1)}, "done done")
	s.call(200, "PUT", "/v1/groups/shirt", `{"max_per_customer":null,"customer_period_seconds":0}`)
	s.stock("m@berlin", `{"stock":20}`)
	s.wantReasons([]string{s.reasonOf("c", "m@berlin", 9)}, "done")
	s.sound()
}

// What a customer may have of a group counts units that are bought, without those
// that came back, and holds that move to another cart.
func TestLimitOfAGroupCounts(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.stock("m", `{"stock":20,"group":"shirt"}`)
	s.stock("l", `{"stock":20,"group":"shirt","max_per_customer":3}`)
	s.call(200, "PUT", "/v1/groups/shirt", `{"max_per_customer":4}`)
	bought := s.held("ann", "m", 3)
	s.call(200, "POST", "/v1/carts/ann/checkout", "")
	s.wantReasons([]string{s.reasonOf("ann", "l", 2)}, "limit_exceeded")
	s.call(200, "POST", "/v1/reservations/"+bought+"/return", `{"quantity":1}`)
	s.wantReasons([]string{s.reasonOf("ann", "l", 2)}, "done")
	s.held("guest", "m", 1)
	s.refused(limitExceeded, "POST", "/v1/carts/guest/transfer", `{"to":"ann"}`)
	request := s.call(202, "PATCH", "/v1/carts/ann/items/l", `{"quantity":1}`).text(t, "request_id")
	s.decide()
	s.wantReasons([]string{s.ended(request)}, "done")
	s.call(200, "POST", "/v1/carts/guest/transfer", `{"to":"ann"}`)
	lines := s.call(202, "POST", "/v1/carts/bob/items", `{"lines":[{"variant_id":"m","quantity":3},{"variant_id":"l","quantity":2}]}`).text(t, "request_id")
	s.decide()
	s.wantReasons([]string{s.ended(lines), s.reasonOf("bob", "m", 4)}, "limit_exceeded done")
	s.sound()
}

// 64 callers of one customer want three variants of a group, of which one is hot,
// and get two units.
func TestLimitOfAGroupConcurrently(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	variants := []string{"s", "m", "l"}
	for i, variant := range variants {
		s.stock(variant, fmt.Sprintf(`{"stock":100,"group":"shirt","lane":%q}`, []string{"hot", "normal", "hot"}[i]))
	}
	s.call(200, "PUT", "/v1/groups/shirt", `{"max_per_customer":2}`)
	s.serveLanes()
	var all sync.WaitGroup
	for i := range 64 {
		all.Go(func() {
			body := fmt.Sprintf(`{"variant_id":%q,"quantity":1}`, variants[i%3])
			headers := []string{customerHeader, "ann"}
			if i%2 == 0 {
				headers = append(headers, "Prefer", "wait=10")
			}
			if r, err := s.try("POST", fmt.Sprintf("/v1/carts/c%d/items", i), strings.NewReader(body), headers...); err != nil || r.status > 202 {
				t.Errorf("%d %s %v", r.status, r.body, err)
			}
		})
	}
	all.Wait()
	for s.count(`SELECT count(*) FROM reservation_requests WHERE status IN ('queued', 'processing')`) > 0 {
		s.decide()
	}
	if n := s.count(`SELECT sum(quantity) FROM reservations WHERE status = 'held' AND customer_id = 'ann'`); n != 2 {
		t.Errorf("the customer holds %d units, want 2", n)
	}
	s.sound()
}
