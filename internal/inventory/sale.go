package inventory

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/pg"
	"github.com/holdfast/holdfast/reservations"
)

// customerKey is what a customer has of a variant.
type customerKey struct {
	tenantID              uuid.UUID
	customerID, variantID string
}

// customerKeyOf is that of the request's customer: a cart without one is its own
// customer.
func customerKeyOf(request *HoldRequest) customerKey {
	return customerKey{request.TenantID, cmp.Or(request.CustomerID, request.CartID), request.VariantID}
}

// bought is how many units customers hold and have committed, as far as a rule
// counts them.
type bought map[customerKey]int64

// add counts what a request was granted, in place of what it replaces.
func (b bought) add(request *HoldRequest, sale *Sale, replaced []reservations.Reservation, now time.Time) {
	key := customerKeyOf(request)
	_, counted := sale.unitsOf(key.customerID, replaced, now)
	b[key] += request.Quantity - counted
}

// undo no longer counts a hold that replaced nothing.
func (b bought) undo(hold *reservations.Reservation) {
	key := customerKey{hold.TenantID, cmp.Or(hold.CustomerID, hold.HolderID), hold.ResourceKey}
	if _, counted := b[key]; counted {
		b[key] -= hold.Quantity
	}
}

// unitsOf sums what a customer has of the holds, and the part of it that the
// limit counts: holds of before the period are not counted.
func (s *Sale) unitsOf(customerID string, held []reservations.Reservation, now time.Time) (all, counted int64) {
	for i := range held {
		if cmp.Or(held[i].CustomerID, held[i].HolderID) != customerID {
			continue
		}
		all += held[i].Quantity
		if s.CustomerPeriodSeconds == nil || held[i].HeldAt.After(now.Add(-time.Duration(*s.CustomerPeriodSeconds)*time.Second)) {
			counted += held[i].Quantity
		}
	}
	return all, counted
}

// bySale returns the outcome of a request that a rule of the variant's sale
// rejects, or "". held is what its cart holds of the variant.
func (d *decision) bySale(request *HoldRequest, sale *Sale, held []reservations.Reservation, in *inputs) Outcome {
	total := request.Quantity
	if !request.Replace {
		total += units(held)
	}
	lowers := request.Replace && total <= units(held)
	multiple := sale.QuantityStep == nil || total%int64(*sale.QuantityStep) == 0
	switch {
	case !lowers && !sale.isOn(in.now):
		return NotOnSale
	case sale.QuantityMin != nil && total < int64(*sale.QuantityMin), !multiple:
		return NotAllowed
	case sale.MaxPerCustomer != nil && d.exceeds(request, sale, held, in):
		return LimitExceeded
	}
	return ""
}

// exceeds reports whether the request's customer would have more units than the
// limit. A quantity that does not exceed what the customer has in the cart is
// granted. Units that the cart holds for another customer become those of the
// request's.
func (d *decision) exceeds(request *HoldRequest, sale *Sale, held []reservations.Reservation, in *inputs) bool {
	key := customerKeyOf(request)
	wants := in.bought[key] + d.bought[key] + request.Quantity
	if request.Replace {
		own, counted := sale.unitsOf(key.customerID, held, in.now)
		if request.Quantity <= own {
			return false
		}
		wants -= counted
	}
	return wants > int64(*sale.MaxPerCustomer)
}

func (s *Sale) isOn(now time.Time) bool {
	return (s.StartsAt == nil || !now.Before(*s.StartsAt)) && (s.EndsAt == nil || now.Before(*s.EndsAt))
}

// boughtSQL sums what customers hold and have committed of variants. A cart
// whose holds name no customer is its own. Each hold is found by one of two
// indexes.
//
// A due hold counts if it cannot be locked: a transaction that has not committed
// may have extended it before it was due. Once it is locked here, it cannot be
// extended any more. A changed quantity is a new hold, so the period counts from
// held_at: from first_held_at, units that an old hold was raised by would never
// count.
const boughtSQL = `
WITH wanted AS MATERIALIZED (
    SELECT w.tenant_id, w.customer_id, w.variant_id, coalesce($5::timestamptz - make_interval(secs => w.period), '-infinity') AS since, w.place
    FROM unnest($1::uuid[], $2::text[], $3::text[], $4::integer[]) WITH ORDINALITY AS w (tenant_id, customer_id, variant_id, period, place)
), gone_of_customer AS MATERIALIZED (
    SELECT own.reservation_id
    FROM wanted
    JOIN reservations own ON own.tenant_id = wanted.tenant_id AND own.customer_id = wanted.customer_id AND own.resource_key = wanted.variant_id
    WHERE own.resource_kind = '` + Kind + `' AND own.status = 'held' AND own.expires_at <= $5
    FOR NO KEY UPDATE OF own SKIP LOCKED
), gone_of_cart AS MATERIALIZED (
    SELECT own.reservation_id
    FROM wanted
    JOIN reservations own ON own.tenant_id = wanted.tenant_id AND own.holder_id = wanted.customer_id AND own.resource_key = wanted.variant_id
    WHERE own.resource_kind = '` + Kind + `' AND own.status = 'held' AND own.expires_at <= $5 AND own.customer_id IS NULL
    FOR NO KEY UPDATE OF own SKIP LOCKED
)
SELECT wanted.place - 1, coalesce(sum(r.quantity - coalesce(r.returned_quantity, 0)), 0)::bigint
FROM wanted
CROSS JOIN LATERAL (
    SELECT own.*
    FROM reservations own
    WHERE own.tenant_id = wanted.tenant_id AND own.customer_id = wanted.customer_id AND own.resource_key = wanted.variant_id
    UNION ALL
    SELECT own.*
    FROM reservations own
    WHERE own.tenant_id = wanted.tenant_id AND own.holder_id = wanted.customer_id AND own.resource_key = wanted.variant_id
      AND own.customer_id IS NULL
) r
WHERE r.resource_kind = '` + Kind + `' AND r.status IN ('committed', 'held') AND r.held_at > wanted.since
  AND NOT (r.status = 'held' AND r.expires_at <= $5
           AND (r.reservation_id IN (SELECT reservation_id FROM gone_of_customer) OR r.reservation_id IN (SELECT reservation_id FROM gone_of_cart)))
GROUP BY wanted.place`

// readBoughtTx reads what the customers of the requests have, of variants that
// limit it. Under the lock of their stock it does not grow meanwhile.
func (in *inputs) readBoughtTx(ctx context.Context, tx pgx.Tx, requests []HoldRequest) error {
	var keys []customerKey
	var tenants [][16]byte
	var customers, variants []string
	var periods []*int32
	seen := make(map[customerKey]bool)
	for i := range requests {
		c := in.counters[Ref{requests[i].TenantID, requests[i].VariantID}]
		if c == nil || c.Sale == nil || c.Sale.MaxPerCustomer == nil {
			continue
		}
		if key := customerKeyOf(&requests[i]); !seen[key] {
			seen[key] = true
			keys = append(keys, key)
			tenants, customers, variants = append(tenants, key.tenantID), append(customers, key.customerID), append(variants, key.variantID)
			periods = append(periods, c.Sale.CustomerPeriodSeconds)
		}
	}
	if len(keys) == 0 {
		return nil
	}
	type sum struct{ Place, Units int64 }
	sums, err := pg.Select(ctx, tx, pgx.RowToStructByPos[sum], boughtSQL, tenants, customers, variants, periods, in.now)
	if err != nil {
		return fmt.Errorf("read what %d customers have: %w", len(keys), err)
	}
	in.bought = make(bought, len(keys))
	for _, s := range sums {
		in.bought[keys[s.Place]] = s.Units
	}
	return nil
}
