package inventory

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/holdfast/holdfast/internal/reservationrows"
	"github.com/holdfast/holdfast/reservations"
)

func TestSaleRules(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 27, 10, 0, 0, 0, time.UTC)
	before, after := now.Add(-time.Hour), now.Add(time.Hour)
	add := func(n int64) HoldRequest { return HoldRequest{Quantity: n} }
	set := func(n int64) HoldRequest { return HoldRequest{Quantity: n, Replace: true} }
	for _, test := range []struct {
		name    string
		sale    Sale
		held    int64 // by the cart
		bought  int64 // by the customer, with what the cart holds
		request HoldRequest
		want    Outcome
	}{
		{"no rule", Sale{}, 0, 0, add(1), Granted},
		{"before the start", Sale{StartsAt: &after}, 0, 0, add(1), NotOnSale},
		{"at the start", Sale{StartsAt: &now}, 0, 0, add(1), Granted},
		{"at the end", Sale{EndsAt: &now}, 0, 0, add(1), NotOnSale},
		{"within", Sale{StartsAt: &before, EndsAt: &after}, 0, 0, add(1), Granted},
		{"lowered after the end", Sale{EndsAt: &before}, 3, 0, set(2), Granted},
		{"kept after the end", Sale{EndsAt: &before}, 3, 0, set(3), Granted},
		{"raised after the end", Sale{EndsAt: &before}, 3, 0, set(4), NotOnSale},
		{"below the least", Sale{QuantityMin: new(int32(6))}, 0, 0, add(5), NotAllowed},
		{"the least in all", Sale{QuantityMin: new(int32(6))}, 5, 0, add(1), Granted},
		{"lowered below the least", Sale{QuantityMin: new(int32(6))}, 6, 0, set(5), NotAllowed},
		{"no multiple", Sale{QuantityStep: new(int32(6))}, 6, 0, add(3), NotAllowed},
		{"a multiple", Sale{QuantityStep: new(int32(6))}, 6, 0, add(6), Granted},
		{"a customer's last", Sale{MaxPerCustomer: new(int32(2))}, 0, 1, add(1), Granted},
		{"a customer's next", Sale{MaxPerCustomer: new(int32(2))}, 0, 1, add(2), LimitExceeded},
		{"a customer replaces", Sale{MaxPerCustomer: new(int32(2))}, 2, 2, set(2), Granted},
		{"a customer raises", Sale{MaxPerCustomer: new(int32(2))}, 1, 1, set(3), LimitExceeded},
		{"a customer who has too much lowers", Sale{MaxPerCustomer: new(int32(2))}, 5, 9, set(4), Granted},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			tenant := uuid.New()
			ref := Ref{tenant, "shirt"}
			request := test.request
			request.TenantID, request.VariantID, request.CartID, request.RequestID = tenant, "shirt", "cart", uuid.New()
			in := inputs{
				stocks: stocks{counters: map[Ref]*counter{ref: {TenantID: tenant, VariantID: "shirt", Stock: 100, Reserved: test.held, Tracked: true, Sale: &test.sale}}, now: now},
				Terms:  Terms{TTL: time.Minute, LifetimeMax: time.Hour},
				bought: bought{{tenantID: tenant, customerID: "cart", variantID: "shirt"}: test.bought},
			}
			if test.held > 0 {
				in.cartHolds = map[reservationrows.HolderKey][]reservations.Reservation{holderKey(&request): {{
					TenantID: tenant, ReservationID: uuid.New(), ResourceKey: "shirt", HolderID: "cart", Quantity: test.held, Status: reservations.Held,
				}}}
			}
			if got := decide([]HoldRequest{request}, in).outcomes[0]; got != test.want {
				t.Errorf("%s, want %s", got, test.want)
			}
		})
	}
}

func TestPreorder(t *testing.T) {
	t.Parallel()
	tenant := uuid.New()
	ref := Ref{tenant, "shirt"}
	in := inputs{
		stocks: stocks{counters: map[Ref]*counter{ref: {TenantID: tenant, VariantID: "shirt", Stock: 1, Tracked: true, Backorder: true, PreorderMax: new(int64(2))}}},
		Terms:  Terms{TTL: time.Minute, LifetimeMax: time.Hour},
	}
	var requests []HoldRequest
	for range 5 {
		requests = append(requests, HoldRequest{TenantID: tenant, VariantID: "shirt", CartID: "cart", RequestID: uuid.New(), Quantity: 1})
	}
	for i, got := range decide(requests, in).outcomes {
		if want := []Outcome{Granted, Granted, Granted, OutOfStock, OutOfStock}[i]; got != want {
			t.Errorf("request %d is %s, want %s", i, got, want)
		}
	}
}
