package httpapi

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/holdfast/holdfast/verify"
)

// sound checks the invariants of all rows.
func (s *shop) sound() {
	s.t.Helper()
	report, err := verify.Run(s.t.Context(), s.db, verify.Config{})
	s.must(err)
	for _, c := range report.Checks {
		if c.Broken > 0 {
			s.t.Errorf("%s: %d rows, such as %s", c.Name, c.Broken, c.Sample[0])
		}
	}
}

// held adds units to a cart, and returns the id of the hold.
func (s *shop) held(cart, variant string, quantity int, headers ...string) string {
	s.t.Helper()
	body := fmt.Sprintf(`{"variant_id":%q,"quantity":%d}`, variant, quantity)
	request := s.call(202, "POST", "/v1/carts/"+cart+"/items", body, headers...).text(s.t, "request_id")
	s.decide()
	s.wantReasons([]string{s.ended(request)}, "done")
	return request
}

func TestCommitPart(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.stock("shirt", `{"stock":10}`)
	id := s.held("c", "shirt", 5)
	path := "/v1/reservations/" + id
	for body, field := range map[string]string{`{"quantity":6}`: "quantity", `{"quantity":0}`: "quantity", `{"unit_ids":["a"]}`: "unit_ids", `{"unit_ids":[]}`: "unit_ids"} {
		if p := s.refused(invalid, "POST", path+"/commit", body); p.Errors[0].Field != field {
			t.Errorf("%s: the field is %q, want %q", body, p.Errors[0].Field, field)
		}
	}
	first := s.call(200, "POST", path+"/commit", `{"quantity":2}`, "Idempotency-Key", "one")
	golden(t, "reservation_part", first)
	if again := s.call(200, "POST", path+"/commit", `{"quantity":2}`, "Idempotency-Key", "one"); !bytes.Equal(again.body, first.body) {
		t.Errorf("the repetition is %s, the call was %s", again.body, first.body)
	}
	s.wantStock("shirt", 8, 3)
	s.sound()
	s.refused(conflictingState, "POST", "/v1/reservations/"+first.object(t)["committed"].(map[string]any)["reservation_id"].(string)+"/commit", `{"quantity":1}`)
	last := s.call(200, "POST", path+"/commit", `{"quantity":3}`).object(t)
	if last["rest"] != nil || last["committed"].(map[string]any)["reservation_id"] != id {
		t.Errorf("the commit of the rest is %v, want the hold and no rest", last)
	}
	s.wantStock("shirt", 5, 0)
	s.refused(conflictingState, "POST", path+"/commit", `{"quantity":1}`)
	s.refused(notFound, "POST", "/v1/reservations/00000000-0000-0000-0000-000000000001/commit", `{"quantity":1}`)
	s.cartWith("paying", "shirt", 2)
	s.begin("paying")
	var paying string
	s.must(s.db.QueryRow(t.Context(), `SELECT reservation_id::text FROM reservations WHERE holder_id = 'paying'`).Scan(&paying))
	s.refused(checkoutRunning, "POST", "/v1/reservations/"+paying+"/commit", `{"quantity":1}`)
	s.sound()
}

// What is left of a hold expires, is released and is changed as any other.
func TestRestOfCommittedPart(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.stock("shirt", `{"stock":20,"max_per_customer":6}`)
	for _, cart := range []string{"released", "changed", "due"} {
		s.call(200, "POST", "/v1/reservations/"+s.held(cart, "shirt", 4)+"/commit", `{"quantity":3}`)
	}
	s.call(200, "DELETE", "/v1/carts/released/items/shirt", "")
	request := s.call(202, "PATCH", "/v1/carts/changed/items/shirt", `{"quantity":4}`).text(t, "request_id")
	s.decide()
	s.wantReasons([]string{s.ended(request)}, "limit_exceeded") // 3 are bought
	request = s.call(202, "PATCH", "/v1/carts/changed/items/shirt", `{"quantity":3}`).text(t, "request_id")
	s.decide()
	s.wantReasons([]string{s.ended(request)}, "done")
	s.due("due")
	_, err := s.db.Exec(t.Context(), `UPDATE reservations SET held_at = held_at - interval '1 hour' WHERE holder_id = 'due' AND part_of IS NOT NULL`)
	s.must(err)
	s.refused(conflictingState, "POST", "/v1/reservations/"+s.rows(`SELECT reservation_id::text FROM reservations WHERE holder_id = 'due' AND status = 'held'`)[0]+"/commit", `{"quantity":1}`)
	s.refused(holdExpired, "POST", "/v1/carts/due/checkout", "")
	s.wantStock("shirt", 11, 4)
}

func TestReturn(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.stock("shirt", `{"stock":10,"max_per_customer":5}`)
	id := s.held("c", "shirt", 5)
	path := "/v1/reservations/" + id
	if p := s.refused(conflictingState, "POST", path+"/return", `{"quantity":1}`); p.Expected != "committed" || p.Actual != "held" {
		t.Errorf("expected %q and actual %q, want committed and held", p.Expected, p.Actual)
	}
	s.call(200, "POST", path+"/commit", "")
	s.refused(invalid, "POST", path+"/return", `{}`)
	s.refused(invalid, "POST", path+"/return", `{"unit_ids":["a"]}`)
	s.refused(returnExceeds, "POST", path+"/return", `{"quantity":6}`)
	golden(t, "reservation_returned", s.call(200, "POST", path+"/return", `{"quantity":2,"reason":"did not fit"}`))
	s.wantStock("shirt", 7, 0)
	s.refused(returnExceeds, "POST", path+"/return", `{"quantity":4}`)
	s.wantReasons([]string{s.reasonOf("c", "shirt", 3), s.reasonOf("c", "shirt", 2)}, "limit_exceeded done")
	s.sound()
	s.call(200, "POST", path+"/return", `{"quantity":3}`)
	s.refused(returnExceeds, "POST", path+"/return", `{"quantity":1}`)
	s.wantStock("shirt", 10, 2)
	var actions []string
	for _, item := range s.call(200, "GET", path+"/history", "").object(t)["items"].([]any) {
		record := item.(map[string]any)
		actions = append(actions, fmt.Sprint(record["action"], " ", record["after"].(map[string]any)["quantity"], " ", record["reason"]))
	}
	if got, want := strings.Join(actions, "; "), "reservation.held 5 <nil>; reservation.committed 5 <nil>; reservation.returned 3 did not fit; reservation.returned 0 <nil>"; got != want {
		t.Errorf("the history is %s, want %s", got, want)
	}
	s.sound()
	s.call(200, "DELETE", "/v1/carts/c/items/shirt", "")
	s.call(200, "DELETE", "/v1/stocks/shirt", "")
}

func TestPartsOfBlocks(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.block("hall", 6)
	request := s.wish("c", `{"block":"hall","any_of":4}`)
	s.decide()
	path := "/v1/reservations/" + request
	units := func(r any) string { return fmt.Sprint(r.(map[string]any)["unit_ids"]) }
	all := s.call(200, "GET", path, "").object(t)["unit_ids"].([]any)
	body := func(places ...int) string {
		var ids []string
		for _, i := range places {
			ids = append(ids, fmt.Sprintf("%q", all[i]))
		}
		return `{"unit_ids":[` + strings.Join(ids, ",") + `]}`
	}
	s.refused(invalid, "POST", path+"/commit", `{"quantity":2}`)
	s.refused(invalid, "POST", path+"/commit", `{"unit_ids":["nobody"]}`)
	s.refused(invalid, "POST", path+"/commit", body(1, 1))
	part := s.call(200, "POST", path+"/commit", body(2, 0)).object(t)
	if got := units(part["rest"]); got != fmt.Sprint([]any{all[1], all[3]}) {
		t.Errorf("the rest has %s", got)
	}
	s.sound()
	committed := "/v1/reservations/" + part["committed"].(map[string]any)["reservation_id"].(string)
	s.refused(returnExceeds, "POST", committed+"/return", body(1))
	s.call(200, "POST", committed+"/return", body(2))
	s.refused(returnExceeds, "POST", committed+"/return", body(2))
	s.sound()
	s.call(200, "POST", committed+"/return", body(0))
	s.refused(returnExceeds, "POST", committed+"/return", body(0))
	s.wantStock("hall", 6, 2)
	again := s.wish("d", strings.Replace(body(0, 2), "{", `{"block":"hall",`, 1))
	s.decide()
	s.wantReasons([]string{s.ended(again)}, "done")
	s.sound()
}

// A block is deleted after units of it were sold, and another stock has its id.
// The sold units do not return to that one.
func TestDeleteSold(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	sold := func(path, returned string) (gone func()) {
		s.call(200, "POST", path+"/commit", `{}`)
		return func() { s.t.Helper(); s.refused(notFound, "POST", path+"/return", returned); s.sound() }
	}
	for i, next := range []func(hall string){
		func(string) {},
		func(hall string) { s.block(hall, 2) },
		func(hall string) { s.stock(hall, `{"stock":5}`) },
	} {
		hall := fmt.Sprint("hall-", i)
		s.block(hall, 2)
		request := s.wish("c", fmt.Sprintf(`{"block":%q,"unit_ids":["s1"]}`, hall))
		s.decide()
		gone := sold("/v1/reservations/"+request, `{"unit_ids":["s1"]}`)
		s.sound()
		s.call(200, "DELETE", "/v1/stocks/"+hall, "")
		gone()
		next(hall)
		gone()
	}
	s.stock("hall", `{"stock":5}`)
	gone := sold("/v1/reservations/"+s.held("c", "hall", 2), `{"quantity":1}`)
	s.call(200, "DELETE", "/v1/stocks/hall", "")
	gone()
	s.block("hall", 2)
	gone()
	s.wantUnits("hall", "aa")
}

func TestTransferCart(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.camp()
	s.stock("shirt", `{"stock":20,"max_per_cart":4}`)
	s.stock("lamp", `{"stock":20,"max_per_customer":3}`)
	s.refused(invalid, "POST", "/v1/carts/guest/transfer", `{}`)
	s.refused(invalid, "POST", "/v1/carts/guest/transfer", `{"to":"guest"}`)
	if moved := s.call(200, "POST", "/v1/carts/guest/transfer", `{"to":"ann"}`).object(t)["moved"]; moved != 0.0 {
		t.Errorf("an empty cart moves %v units", moved)
	}
	hold := s.held("guest", "shirt", 3)
	s.held("guest", "lamp", 2)
	kit := s.wish("guest", `{"kit_id":"camp","quantity":1}`)
	s.refused(requestsPending, "POST", "/v1/carts/guest/transfer", `{"to":"ann"}`)
	s.decide()
	s.wantReasons([]string{s.ended(kit)}, "done")
	deadline := s.call(200, "GET", "/v1/reservations/"+hold, "").text(t, "expires_at")

	s.held("full", "shirt", 2)
	s.refused(limitExceeded, "POST", "/v1/carts/guest/transfer", `{"to":"full"}`)
	s.held("other", "lamp", 2, customerHeader, "ann")
	s.refused(limitExceeded, "POST", "/v1/carts/guest/transfer", `{"to":"ann"}`)
	s.refused(limitExceeded, "POST", "/v1/carts/guest/transfer", `{"to":"bob"}`, customerHeader, "ann")
	if n := s.count(`SELECT count(*) FROM reservations WHERE holder_id = 'guest'`); n != 4 {
		t.Errorf("%d holds after refused transfers, want 4", n)
	}
	transferred := s.call(200, "POST", "/v1/carts/guest/transfer", `{"to":"cart-of-bob"}`, customerHeader, "bob")
	golden(t, "transfer_cart", transferred)
	moved := transferred.object(t)
	if moved["moved"] != 10.0 || len(moved["reservations"].([]any)) != 4 {
		t.Errorf("moved %v", moved)
	}
	r := s.call(200, "GET", "/v1/reservations/"+hold, "")
	if r.text(t, "cart_id") != "cart-of-bob" || r.text(t, "expires_at") != deadline {
		t.Errorf("the hold is %s, want the deadline %s", r.body, deadline)
	}
	s.sound()
	s.wantReasons([]string{s.reasonOf("third", "lamp", 2, customerHeader, "bob"), s.reasonOf("third", "lamp", 1, customerHeader, "bob")}, "limit_exceeded done")
	request := s.call(202, "PATCH", "/v1/carts/cart-of-bob/items/shirt", `{"quantity":4}`).text(t, "request_id")
	s.decide()
	s.wantReasons([]string{s.ended(request)}, "done")
	s.held("cart-of-bob", "tent", 1)
	s.call(200, "DELETE", "/v1/carts/cart-of-bob/kits/camp", "")
	s.begin("cart-of-bob")
	s.refused(checkoutRunning, "POST", "/v1/carts/cart-of-bob/transfer", `{"to":"guest"}`)
	s.sound()
}

// Callers commit parts, return them, move carts and change them at the same time.
// Nothing is lost, and each step is recorded.
func TestEndsConcurrently(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.stock("shirt", `{"stock":40,"max_per_cart":9}`)
	s.stock("ring", `{"stock":40,"lane":"hot"}`)
	s.block("hall", 30)
	s.serveLanes()
	for round := range 6 {
		var all sync.WaitGroup
		for caller := range 12 {
			random := rand.New(rand.NewPCG(uint64(round), uint64(caller)))
			all.Go(func() {
				for range 6 {
					s.step(random)
				}
			})
		}
		all.Wait()
		for s.count(`SELECT count(*) FROM reservation_requests WHERE status IN ('queued', 'processing')`) > 0 {
			s.decide()
		}
		s.sound()
	}
	if n := s.count(`SELECT count(*) FROM reservations WHERE part_of IS NOT NULL`); n == 0 {
		t.Error("no part was committed")
	}
	for _, action := range []string{"resized", "moved", "returned"} {
		if n := s.count(`SELECT count(*) FROM audit_log WHERE action = $1`, "reservation."+action); n == 0 {
			t.Errorf("no reservation was %s", action)
		}
	}
}

// step makes a random call, whose outcome is not checked.
func (s *shop) step(random *rand.Rand) {
	cart := func() string { return fmt.Sprint("cart-", random.IntN(5)) }
	pick := func(status string) (id, units string, quantity int64) {
		_ = s.db.QueryRow(s.t.Context(), `SELECT reservation_id::text, coalesce(unit_ids->>0, ''), quantity FROM reservations WHERE status = $1
			OFFSET $2 LIMIT 1`, status, random.IntN(8)).Scan(&id, &units, &quantity)
		return id, units, quantity
	}
	part := func(verb, status string) (path, body string) {
		id, unit, quantity := pick(status)
		if id == "" {
			id, quantity = "00000000-0000-0000-0000-000000000001", 1
		}
		if body = fmt.Sprintf(`{"quantity":%d}`, 1+random.Int64N(quantity)); unit != "" {
			body = fmt.Sprintf(`{"unit_ids":[%q]}`, unit)
		}
		return "/v1/reservations/" + id + "/" + verb, body
	}
	var method, path, body string
	switch method = "POST"; random.IntN(8) {
	case 0:
		path, body = part("commit", "held")
	case 1:
		path, body = part("return", "committed")
	case 2:
		path, body = "/v1/carts/"+cart()+"/transfer", fmt.Sprintf(`{"to":%q}`, cart())
	case 3:
		path = "/v1/carts/" + cart() + "/checkout"
	case 4:
		method, path, body = "PATCH", "/v1/carts/"+cart()+"/items/shirt", fmt.Sprintf(`{"quantity":%d}`, 1+random.IntN(4))
	case 5:
		path, body = "/v1/carts/"+cart()+"/items", `{"block":"hall","any_of":2}`
	default:
		path, body = "/v1/carts/"+cart()+"/items", fmt.Sprintf(`{"variant_id":%q,"quantity":%d}`, []string{"shirt", "ring"}[random.IntN(2)], 1+random.IntN(4))
	}
	if r, err := s.try(method, path, strings.NewReader(body)); err != nil || r.status >= 500 {
		s.t.Errorf("%s %s %s: %d %s %v", method, path, body, r.status, r.body, err)
	}
}
