package httpapi

import (
	"fmt"
	"sync"
	"testing"

	"github.com/google/uuid"

	"github.com/holdfast/holdfast/internal/pgtest"
)

// TestEntityTag checks that the answer is 304 while nothing changes.
func TestEntityTag(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.stock("shirt", `{"stock":1}`)
	path := "/v1/requests/" + s.add("c", "shirt", 1)
	tag := s.call(200, "GET", path, "").header.Get("ETag")
	for _, known := range []string{tag, "W/" + tag, `"x", ` + tag, "*"} {
		r := s.call(304, "GET", path, "", "If-None-Match", known)
		if len(r.body) != 0 || r.header.Get("ETag") != tag {
			t.Errorf("304 has the body %q and the tag %s, want none and %s", r.body, r.header.Get("ETag"), tag)
		}
	}
	if r := s.call(200, "GET", path, "", "If-None-Match", `"x"`); r.header.Get("ETag") != tag {
		t.Errorf("the tag is %s, was %s", r.header.Get("ETag"), tag)
	}
	s.decide()
	done := s.call(200, "GET", path, "", "If-None-Match", tag)
	if done.header.Get("ETag") == tag || done.text(t, "status") != "done" {
		t.Errorf("after the decision: %s %s", done.header.Get("ETag"), done.body)
	}
	s.call(200, "POST", "/v1/carts/c/checkout", "")
	r := s.call(200, "GET", path, "", "If-None-Match", done.header.Get("ETag"))
	if got := r.object(t)["reservation"].(map[string]any)["status"]; got != "committed" {
		t.Errorf("the reservation is %v, want committed, under another tag", got)
	}
}

// TestLongPoll checks that the answer comes once the request is finished, or
// when the time is over.
func TestLongPoll(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.stock("shirt", `{"stock":1}`)
	s.stock("ticket", `{"stock":1,"lane":"hot"}`)
	id, undecided := s.add("c", "shirt", 1), s.add("c", "ticket", 1)
	path := "/v1/requests/" + id
	tag := s.call(200, "GET", path, "").header.Get("ETag")
	s.call(304, "GET", path+"?wait=1", "", "If-None-Match", tag)

	var earlier sync.WaitGroup // it begins to wait before the others, and has the same limit
	earlier.Go(func() {
		if r, err := s.try("GET", "/v1/requests/"+undecided+"?wait=30", nil); err != nil || r.text(t, "status") != "done" {
			t.Errorf("the earlier waiter received %d %s, %v", r.status, r.body, err)
		}
	})
	s.untilAnswering(1)
	var waiting sync.WaitGroup
	for range 3 {
		waiting.Go(func() {
			r, err := s.try("GET", path+"?wait=30", nil, "If-None-Match", tag)
			if err != nil || r.status != 200 || r.text(t, "status") != "done" {
				t.Errorf("the waiter received %d %s, %v", r.status, r.body, err)
			}
		})
	}
	s.untilAnswering(4)
	_, err := s.lanes[1].Tick(t.Context()) // the normal lane
	s.must(err)
	waiting.Wait()
	pgtest.Until(t, "the earlier one waits alone, as the others were not answered at the limit", func() bool { return s.answering.Load() == 1 })
	s.decide()
	earlier.Wait()
	s.refused(notFound, "GET", "/v1/requests/"+uuid.NewString()+"?wait=30", "")
}

// TestLongPollIsCancelled checks that a caller that waits for a request is
// answered when it is cancelled.
func TestLongPollIsCancelled(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	id := s.add("c", "shirt", 1)
	var waiting sync.WaitGroup
	waiting.Go(func() {
		r, err := s.try("GET", "/v1/requests/"+id+"?wait=30", nil)
		if err != nil || r.text(t, "reason") != "cancelled" {
			t.Errorf("the waiter received %s, %v", r.body, err)
		}
	})
	s.untilAnswering(1)
	s.call(200, "DELETE", "/v1/carts/c/items/shirt", "")
	waiting.Wait()
}

// untilAnswering waits until the API is answering n calls.
func (s *shop) untilAnswering(n int64) {
	s.t.Helper()
	pgtest.Until(s.t, fmt.Sprintf("%d callers wait", n), func() bool { return s.answering.Load() >= n })
}

// TestOtherTenant checks that no call can read or change the rows of another
// tenant.
func TestOtherTenant(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.stock("shirt", `{"stock":10}`)
	id := s.add("c", "shirt", 1)
	s.decide()
	before := s.written()
	_, s.key = s.newTenant("neighbour")
	for _, call := range []struct{ method, path, body string }{
		{"GET", "/v1/requests/" + id, ""},
		{"GET", "/v1/requests/" + id + "?wait=30", ""},
		{"GET", "/v1/reservations/" + id, ""},
		{"GET", "/v1/reservations/" + id + "/history", ""},
		{"POST", "/v1/reservations/" + id + "/commit", ""},
		{"POST", "/v1/reservations/" + id + "/release", ""},
		{"POST", "/v1/reservations/" + id + "/extend", `{"seconds":1}`},
		{"GET", "/v1/stocks/shirt", ""},
		{"POST", "/v1/stocks/shirt/adjust", `{"delta":1}`},
	} {
		s.refused(notFound, call.method, call.path, call.body)
	}
	golden(t, "not_found", s.call(404, "GET", "/v1/requests/"+id, ""))
	if cart := s.call(200, "GET", "/v1/carts/c", "").object(t); len(cart["reservations"].([]any)) != 0 {
		t.Errorf("the neighbour sees %v", cart)
	}
	s.refused(cartEmpty, "POST", "/v1/carts/c/checkout", "")
	s.refused(cartEmpty, "POST", "/v1/carts/c/extend", `{"seconds":1}`)
	if got := s.call(200, "DELETE", "/v1/carts/c", "").object(t)["released"]; got != 0.0 {
		t.Errorf("the neighbour released %v units", got)
	}
	if items := s.call(200, "GET", "/v1/stocks", "").object(t)["items"].([]any); len(items) != 0 {
		t.Errorf("the neighbour sees the stocks %v", items)
	}
	if after := s.written(); after != before {
		t.Errorf("the neighbour's calls wrote %d rows", after-before)
	}
	if got := s.rows(`SELECT status FROM reservations`); got[0] != "held" {
		t.Errorf("the hold is %s after the neighbour's calls", got[0])
	}
}
