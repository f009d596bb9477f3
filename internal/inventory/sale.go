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
func (b bought) add(request *HoldRequest, replaced []reservations.Reservation) {
	key := customerKeyOf(request)
	b[key] += request.Quantity - unitsOfCustomer(replaced, key.customerID)
}

// undo no longer counts a hold that replaced nothing.
func (b bought) undo(hold *reservations.Reservation) {
	key := customerKey{hold.TenantID, cmp.Or(hold.CustomerID, hold.HolderID), hold.ResourceKey}
	if _, counted := b[key]; counted {
		b[key] -= hold.Quantity
	}
}

func unitsOfCustomer(held []reservations.Reservation, customerID string) (sum int64) {
	for i := range held {
		if cmp.Or(held[i].CustomerID, held[i].HolderID) == customerID {
			sum += held[i].Quantity
		}
	}
	return sum
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
	case sale.MaxPerCustomer != nil && !lowers:
		key := customerKeyOf(request)
		wants := in.bought[key] + d.bought[key] + request.Quantity
		if request.Replace {
			wants -= unitsOfCustomer(held, key.customerID)
		}
		if wants > int64(*sale.MaxPerCustomer) {
			return LimitExceeded
		}
	}
	return ""
}

func (s *Sale) isOn(now time.Time) bool {
	return (s.StartsAt == nil || !now.Before(*s.StartsAt)) && (s.EndsAt == nil || now.Before(*s.EndsAt))
}

// boughtSQL sums what customers hold and have committed of variants. A cart
// whose holds name no customer is its own. Each hold is found by one of two
// indexes.
const boughtSQL = `
SELECT wanted.place - 1, coalesce(sum(r.quantity), 0)::bigint
FROM unnest($1::uuid[], $2::text[], $3::text[], $4::integer[]) WITH ORDINALITY AS wanted (tenant_id, customer_id, variant_id, period, place)
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
WHERE r.resource_kind = '` + Kind + `' AND (r.status = 'committed' OR r.status = 'held' AND r.expires_at > $5)
  AND (wanted.period IS NULL OR r.first_held_at > $5::timestamptz - make_interval(secs => wanted.period))
GROUP BY wanted.place`

// readBoughtTx reads what the customers of the requests have, of variants that
// limit it. Under the lock of their stock it does not change meanwhile.
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
