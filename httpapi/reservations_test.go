package httpapi

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
)

// TestReservation goes through the verbs by id.
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
		t.Errorf("the reason left out is %s, want cart_removed", got)
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

// TestDueReservation can be released, but neither committed nor extended.
func TestDueReservation(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.stock("shirt", `{"stock":10}`)
	id := s.add("c", "shirt", 2)
	s.decide()
	s.due("c")
	path := "/v1/reservations/" + id
	for _, verb := range []string{"/commit", "/extend"} {
		p := s.refused(conflictingState, "POST", path+verb, map[string]string{"/extend": `{"seconds":1}`}[verb])
		if p.Expected != "held" || p.Actual != "expired" {
			t.Errorf("%s: expected %q, actual %q", verb, p.Expected, p.Actual)
		}
	}
	s.call(200, "POST", path+"/release", "")
}

// TestForeignKind is a reservation that is not of a variant: this API does not know it.
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
