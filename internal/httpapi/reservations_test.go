package httpapi

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
)

// TestReservation calls the verbs by id.
func TestReservation(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.stock("shirt", `{"stock":10}`)
	first, second := s.add("c", "shirt", 2), s.add("d", "shirt", 3)
	s.decide()
	path := "/v1/reservations/" + first
	golden(t, "get_reservation", s.call(200, "GET", path, ""))
	golden(t, "extend_reservation", s.call(200, "POST", path+"/extend", `{"seconds":60}`))
	s.refused(lifetimeExceeded, "POST", path+"/extend", `{"seconds":2147483647}`)
	golden(t, "commit_reservation", s.call(200, "POST", path+"/commit", ""))
	golden(t, "conflicting_state", s.call(409, "POST", path+"/commit", ""))
	s.refused(conflictingState, "POST", path+"/release", `{"reason":"operator"}`)
	s.refused(conflictingState, "POST", path+"/extend", `{"seconds":1}`)
	golden(t, "reservation_history", s.call(200, "GET", path+"/history", ""))

	golden(t, "release_reservation", s.call(200, "POST", "/v1/reservations/"+second+"/release", `{"reason":"payment_failed"}`))
	third := s.add("e", "shirt", 1)
	s.decide()
	if got := s.call(200, "POST", "/v1/reservations/"+third+"/release", "").text(t, "release_reason"); got != "cart_removed" {
		t.Errorf("without a reason it is %s, want cart_removed", got)
	}
	want := []string{"c committed ", "d released payment_failed", "e released cart_removed"}
	got := s.rows(`SELECT concat_ws(' ', holder_id, status, coalesce(release_reason, '')) FROM reservations ORDER BY 1`)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("reservations (-want +got):\n%s", diff)
	}
	if got := s.rows(`SELECT concat_ws('/', stock, reserved) FROM inventory_stocks`); got[0] != "8/0" {
		t.Errorf("stock/reserved %s, want 8/0", got[0])
	}
	s.refused(notFound, "GET", "/v1/reservations/"+uuid.NewString()+"/history", "")
}

// TestDueReservation checks that a reservation is expired from its deadline on,
// in every read and for every verb. A release records the expiry and leaves its
// idempotency key unused.
func TestDueReservation(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.stock("shirt", `{"stock":10}`)
	id := s.add("c", "shirt", 2)
	s.decide()
	s.due("c")
	path := "/v1/reservations/" + id
	reads := func(when string) {
		t.Helper()
		if got := s.call(200, "GET", path, ""); got.text(t, "status") != "expired" || got.text(t, "release_reason") != "ttl" {
			t.Errorf("%s it reads as %s", when, got.body)
		}
		if got := s.call(200, "GET", "/v1/requests/"+id, ""); !strings.Contains(string(got.body), `"status":"expired"`) {
			t.Errorf("%s its request reads as %s", when, got.body)
		}
		if got := s.call(200, "GET", "/v1/carts/c", ""); !strings.Contains(string(got.body), `"status":"expired"`) {
			t.Errorf("%s its cart reads as %s", when, got.body)
		}
	}
	reads("before it is swept")
	for _, verb := range []string{"/commit", "/extend", "/release", "/release", "/commit", "/extend"} {
		p := s.refused(conflictingState, "POST", path+verb, map[string]string{"/extend": `{"seconds":1}`}[verb], "Idempotency-Key", "key")
		if p.Expected != "held" || p.Actual != "expired" {
			t.Errorf("%s: expected %q, actual %q", verb, p.Expected, p.Actual)
		}
		want := "held 2"
		if verb == "/release" {
			want = "expired 0"
		}
		got := s.rows(`SELECT concat_ws(' ', r.status, s.reserved) FROM reservations r, inventory_stocks s`)
		if got[0] != want && got[0] != "expired 0" {
			t.Errorf("after %s the row and the reserved units are %s, want %s", verb, got[0], want)
		}
	}
	reads("once its expiry is recorded")
	want := []string{"reservation.held", "reservation.expired"}
	if diff := cmp.Diff(want, s.rows(`SELECT action FROM audit_log WHERE target_id = '`+id+`' ORDER BY audit_id`)); diff != "" {
		t.Errorf("record (-want +got):\n%s", diff)
	}
	if keys := s.rows(`SELECT idempotency_key FROM idempotency_keys`); len(keys) != 0 {
		t.Errorf("refused calls have stored the keys %q", keys)
	}
}

// TestDueCart checks that the due holds of a cart count as expired when the
// cart is emptied, and then no longer prevent a checkout.
func TestDueCart(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.stock("shirt", `{"stock":10}`)
	s.add("c", "shirt", 2)
	s.decide()
	s.due("c")
	s.add("c", "shirt", 3)
	s.decide()
	s.refused(holdExpired, "POST", "/v1/carts/c/extend", `{"seconds":1}`)
	if got := s.call(200, "DELETE", "/v1/carts/c/items/shirt", ""); string(got.body) != `{"released":3,"cancelled":[]}` {
		t.Errorf("removed %s", got.body)
	}
	s.stock("sock", `{"stock":10}`)
	s.add("c", "sock", 1)
	s.decide()
	s.due("c")
	s.refused(holdExpired, "POST", "/v1/carts/c/checkout", "")
	if got := s.call(200, "DELETE", "/v1/carts/c", ""); string(got.body) != `{"released":0,"cancelled":[]}` {
		t.Errorf("emptied %s", got.body)
	}
	s.refused(cartEmpty, "POST", "/v1/carts/c/checkout", "")
	want := []string{"1 expired ttl", "2 expired ttl", "3 released cart_removed"}
	if diff := cmp.Diff(want, s.rows(`SELECT concat_ws(' ', quantity, status, release_reason) FROM reservations ORDER BY quantity`)); diff != "" {
		t.Errorf("reservations (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"10/0", "10/0"}, s.rows(`SELECT concat_ws('/', stock, reserved) FROM inventory_stocks`)); diff != "" {
		t.Errorf("stock/reserved (-want +got):\n%s", diff)
	}
}

// TestForeignKind checks that this API does not find a reservation of another
// kind than variants.
func TestForeignKind(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	id := uuid.New()
	_, err := s.db.Exec(t.Context(), `
		INSERT INTO reservations (tenant_id, reservation_id, resource_kind, resource_key, holder_id, quantity, first_held_at, held_at, expires_at)
		VALUES ($1, $2, 'seat', 'A1', 'c', 1, now(), now(), now() + interval '1 hour')`, s.tenant.TenantID, id)
	s.must(err)
	path := "/v1/reservations/" + id.String()
	s.refused(notFound, "GET", path, "")
	s.refused(notFound, "GET", path+"/history", "")
	s.refused(notFound, "POST", path+"/commit", "")
}
