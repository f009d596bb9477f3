package httpapi

import (
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/holdfast/holdfast"
	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/internal/tenants"
	"github.com/holdfast/holdfast/ratelimit"
)

// TestRetry retries a failed request until it is held. Each retry is a new
// request for the same, in the name of the key that made it.
func TestRetry(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.stock("shirt", `{"stock":1}`)
	failed := s.add("c", "shirt", 2)
	s.refused(conflictingState, "POST", "/v1/requests/"+failed+"/retry", "")
	s.decide()
	s.key = s.newKey(s.tenant, tenants.ScopeOps)
	operator := s.key[:len("hf_123456")]
	r := s.call(202, "POST", "/v1/requests/"+failed+"/retry", "", "Idempotency-Key", "k")
	golden(t, "retry", r)
	again := r.text(t, "request_id")
	if again == failed {
		t.Error("the retry has the id of the failed request")
	}
	if r := s.call(202, "POST", "/v1/requests/"+failed+"/retry", "", "Idempotency-Key", "k"); r.text(t, "request_id") != again {
		t.Errorf("a repetition is answered %s", r.body)
	}
	p := s.refused(conflictingState, "POST", "/v1/requests/"+failed+"/retry", "")
	if p.RetriedBy == nil || p.RetriedBy.String() != again {
		t.Errorf("a second retry is refused with %+v", p)
	}
	if p := s.refused(conflictingState, "POST", "/v1/requests/"+again+"/retry", ""); p.Expected != "failed" || p.Actual != "queued" {
		t.Errorf("a retry of an unfinished request: %+v", p)
	}
	s.decide()

	now := func(id string) any {
		now, _ := s.call(200, "GET", "/v1/ops/history?kind=request&id="+id, "").object(t)["now"].(map[string]any)
		return now["retried_by"]
	}
	if by := s.call(200, "GET", "/v1/requests/"+failed, "").text(t, "retried_by"); by != again || now(failed) != again || now(again) != nil {
		t.Errorf("the failed request is retried by %s and in its history by %v, want %s", by, now(failed), again)
	}
	s.key = s.newKey(s.tenant, tenants.ScopeCart)
	if r := s.call(200, "GET", "/v1/requests/"+failed, ""); r.object(t)["retried_by"] != nil {
		t.Errorf("a shop reads %s", r.body)
	}
	s.key = s.newKey(s.tenant, tenants.AllScopes()...)
	if r := s.call(200, "GET", "/v1/requests/"+again, ""); r.text(t, "retry_of") != failed || r.text(t, "status") != "failed" {
		t.Errorf("the retry is %s", r.body)
	}
	s.stock("shirt", `{"stock":2}`)
	third := s.call(202, "POST", "/v1/requests/"+again+"/retry", "").text(t, "request_id")
	s.decide()
	held := s.call(200, "GET", "/v1/requests/"+third, "")
	golden(t, "retry_held", held)
	want := []string{s.key[:len("hf_123456")] + " reservation.held"}
	got := s.rows(`SELECT actor_id || ' ' || action FROM audit_log WHERE target_id = $1`, third)
	if !slices.Equal(got, want) {
		t.Errorf("the record of the retry is %q, want %q", got, want)
	}
	operated := s.rows(`SELECT action || ' ' || actor_id || ' ' || (after ->> 'retried_by') FROM audit_log WHERE target_id = $1 AND action <> 'request.failed'`, failed)
	if want := []string{"request.retried " + operator + " " + again}; !slices.Equal(operated, want) {
		t.Errorf("the record of the failed request is %q, want %q", operated, want)
	}
	if got := s.rows(`SELECT after ->> 'retry_of' FROM audit_log WHERE target_id = $1 AND action = 'request.failed'`, again); !slices.Equal(got, []string{failed}) {
		t.Errorf("the record of the failed retry names %q, want %s", got, failed)
	}
	s.refused(notFound, "POST", "/v1/requests/"+uuid.NewString()+"/retry", "")
	_, s.key = s.newTenant("neighbour")
	s.refused(notFound, "POST", "/v1/requests/"+failed+"/retry", "")
}

// TestRetryAsksForTheSame checks that a changed quantity and named units are
// asked for again as they were.
func TestRetryAsksForTheSame(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.stock("shirt", `{"stock":3}`)
	s.add("c", "shirt", 2)
	s.decide()
	failed := s.call(202, "PATCH", "/v1/carts/c/items/shirt", `{"quantity":4}`).text(t, "request_id")
	units := s.call(202, "POST", "/v1/carts/c/items", `{"block":"hall","unit_ids":["A1","A2"]}`).text(t, "request_id")
	s.decide()
	s.stock("shirt", `{"stock":4}`)
	s.call(200, "PUT", "/v1/units/hall/import", "unit_id\nA1\nA2\n", "Content-Type", "text/csv")
	for _, id := range []string{failed, units} {
		s.call(202, "POST", "/v1/requests/"+id+"/retry", "")
	}
	s.decide()
	held := s.rows(`SELECT concat_ws(' ', resource_key, quantity, unit_ids) FROM reservations WHERE status = 'held' ORDER BY 1`)
	if want := []string{`hall 2 ["A1", "A2"]`, "shirt 4"}; !slices.Equal(held, want) {
		t.Errorf("held are %q, want %q", held, want)
	}
}

// TestRetryAtOnce retries requests from two processes at once, in any order: one
// of the calls for each makes its retry.
func TestRetryAtOnce(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	shops := []*shop{openShop(t, db, holdfast.Config{}), openShop(t, db, holdfast.Config{})}
	s := shops[0]
	s.stock("shirt", `{"stock":1}`)
	const many, calls = 6, 8
	failed := make([]string, many)
	for i := range failed {
		failed[i] = s.add("c", "shirt", 2)
	}
	s.decide()
	var calling sync.WaitGroup
	var replies [many][calls]reply
	for _, n := range rand.Perm(many * calls) {
		calling.Go(func() {
			r, err := shops[n%2].try("POST", "/v1/requests/"+failed[n/calls]+"/retry", nil)
			if err != nil {
				t.Error(err)
			}
			replies[n/calls][n%calls] = r
		})
	}
	calling.Wait()
	for i, id := range failed {
		accepted, retry := 0, s.rows(`SELECT request_id::text FROM reservation_requests WHERE retry_of = $1`, id)
		for _, r := range replies[i] {
			if r.status == 202 {
				accepted++
			} else if p := s.isProblem(r, conflictingState); len(retry) != 1 || p.RetriedBy == nil || p.RetriedBy.String() != retry[0] {
				t.Errorf("refused with %s, the retries are %q", r.body, retry)
			}
		}
		recorded := s.rows(`SELECT after ->> 'retried_by' FROM audit_log WHERE action = 'request.retried' AND target_id = $1`, id)
		if accepted != 1 || len(retry) != 1 || !slices.Equal(recorded, retry) {
			t.Errorf("%d retries are accepted, stored are %q and recorded %q", accepted, retry, recorded)
		}
	}
}

// TestRetryIsNotMetered checks that a retry needs no token and is not counted.
func TestRetryIsNotMetered(t *testing.T) {
	t.Parallel()
	s := newMeteredShop(t, unlimited, ratelimit.Rate{Limit: 1, Window: time.Hour})
	s.stock("shirt", `{"stock":1,"admission":"token"}`)
	failed := s.call(202, "POST", "/v1/carts/c/items", `{"variant_id":"shirt","quantity":2}`, admissionHeader, s.mint(`{"subject":"c"}`)).text(t, "request_id")
	s.decide()
	s.stock("shirt", `{"stock":2}`)
	r := s.call(202, "POST", "/v1/requests/"+failed+"/retry", "")
	if r.header.Get(limitHeader) != "" {
		t.Errorf("the retry shows the state of rates: %v", r.header)
	}
	if recorded := s.rows(`SELECT after ->> 'retried_by' FROM audit_log WHERE action = 'request.retried'`); !slices.Equal(recorded, []string{r.text(t, "request_id")}) {
		t.Errorf("recorded is %q", recorded)
	}
	s.decide()
	if r := s.call(200, "GET", "/v1/requests/"+r.text(t, "request_id"), ""); r.text(t, "status") != "done" {
		t.Errorf("the retry is %s", r.body)
	}
}

// TestRetryUndoesNoLaterDecision checks that a request is not retried if its
// buyer cancelled it, or set another quantity later.
func TestRetryUndoesNoLaterDecision(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.stock("shirt", `{"stock":3}`)
	s.stock("shoe", `{"stock":1}`)
	s.add("c", "shirt", 1)
	s.add("d", "shirt", 1)
	s.add("e", "shirt", 1)
	s.decide()
	cancelled := s.add("gone", "shirt", 1)
	s.call(200, "DELETE", "/v1/carts/gone/items/shirt", "")
	set := func(cart, quantity string) string {
		return s.call(202, "PATCH", "/v1/carts/"+cart+"/items/shirt", `{"quantity":`+quantity+`}`).text(t, "request_id")
	}
	failed, other := set("c", "5"), set("d", "5")
	s.decide()
	later := set("c", "6")
	s.add("d", "shoe", 1)
	s.decide()
	retry := func(id string) string { return "/v1/requests/" + id + "/retry" }
	for id, detail := range map[string]string{
		cancelled: "the buyer cancelled the request",
		failed:    "the cart has a later request for the same variant, which the retry would undo",
	} {
		if p := s.refused(conflictingState, "POST", retry(id), ""); p.Detail != detail {
			t.Errorf("refused with %q, want %q", p.Detail, detail)
		}
	}
	again := s.call(202, "POST", retry(later), "").text(t, "request_id")
	first := s.call(202, "POST", retry(other), "", "Idempotency-Key", "k").text(t, "request_id")
	s.decide()
	for _, id := range []string{later, other} {
		if p := s.refused(conflictingState, "POST", retry(id), ""); p.RetriedBy == nil {
			t.Errorf("a second retry is refused with %+v", p)
		}
	}
	set("d", "2")
	if r := s.call(200, "POST", retry(other), "", "Idempotency-Key", "k"); r.text(t, "request_id") != first {
		t.Errorf("a repetition is answered %s, want %s", r.body, first)
	}
	s.call(202, "POST", retry(again), "")
}
