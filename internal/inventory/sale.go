package inventory

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/pg"
	"github.com/holdfast/holdfast/reservations"
)

// customerKey is what a customer has of a variant, or of all variants of a group.
type customerKey struct {
	tenantID   uuid.UUID
	customerID string
	variantID  string // "" for a group
	group      string
}

// limit is how many units a customer may have, of holds that are younger than
// the period.
type limit struct {
	customerKey
	most   int32
	period *int32 // seconds, nil for any age
}

// bought is how many units customers hold and have committed, as far as a limit
// counts them.
type bought map[customerKey]int64

// groupKey names a group.
type groupKey struct {
	tenantID uuid.UUID
	group    string
}

// limitsOf returns the limits of the request's customer: that of the variant and
// that of its group. A cart without a customer is its own.
func (in *inputs) limitsOf(request *HoldRequest, sale *Sale) (limits []limit) {
	if sale == nil {
		return nil
	}
	key := customerKey{tenantID: request.TenantID, customerID: cmp.Or(request.CustomerID, request.CartID)}
	if sale.MaxPerCustomer != nil {
		of := key
		of.variantID = request.VariantID
		limits = append(limits, limit{of, *sale.MaxPerCustomer, sale.CustomerPeriodSeconds})
	}
	if sale.Group == nil {
		return limits
	}
	if g, known := in.groups[groupKey{request.TenantID, *sale.Group}]; known && g.MaxPerCustomer != nil {
		key.group = *sale.Group
		limits = append(limits, limit{key, *g.MaxPerCustomer, g.CustomerPeriodSeconds})
	}
	return limits
}

// unitsOf sums what the customer has of the holds, and the part of it that the
// limit counts: holds of before the period are not counted.
func (l *limit) unitsOf(held []reservations.Reservation, now time.Time) (all, counted int64) {
	for i := range held {
		if customerOf(&held[i]) != l.customerID {
			continue
		}
		all += held[i].Quantity
		counted += l.counted(&held[i], now)
	}
	return all, counted
}

// counted is how many units of the hold the limit counts.
func (l *limit) counted(r *reservations.Reservation, now time.Time) int64 {
	if l.period != nil && !r.HeldAt.After(now.Add(-time.Duration(*l.period)*time.Second)) {
		return 0
	}
	return r.Quantity
}

// customerOf is whose limits count the reservation.
func customerOf(r *reservations.Reservation) string { return cmp.Or(r.CustomerID, r.HolderID) }

// add counts what a request was granted, in place of what it replaces.
func (b bought) add(limits []limit, quantity int64, replaced []reservations.Reservation, now time.Time) {
	for i := range limits {
		_, counted := limits[i].unitsOf(replaced, now)
		b[limits[i].customerKey] += quantity - counted
	}
}

// bySale returns the outcome of a request that a rule of the variant's sale
// rejects, or "". replaced is what it gives back, and total how many units of the
// variant its cart would hold.
func (d *decision) bySale(request *HoldRequest, sale *Sale, limits []limit, replaced []reservations.Reservation, total int64, in *inputs) Outcome {
	lowers := request.Replace && request.Quantity <= units(replaced)
	multiple := sale.QuantityStep == nil || total%int64(*sale.QuantityStep) == 0
	switch {
	case !lowers && !sale.isOn(in.now):
		return NotOnSale
	case sale.QuantityMin != nil && total < int64(*sale.QuantityMin), !multiple:
		return NotAllowed
	case slices.ContainsFunc(limits, func(l limit) bool { return d.exceeds(request, &l, replaced, in) }):
		return LimitExceeded
	}
	return ""
}

// exceeds reports whether the request's customer would have more units than the
// limit. A quantity that does not exceed what the customer has in the cart is
// granted. Units that the cart holds for another customer become those of the
// request's.
func (d *decision) exceeds(request *HoldRequest, l *limit, replaced []reservations.Reservation, in *inputs) bool {
	wants := in.bought[l.customerKey] + d.bought[l.customerKey] + request.Quantity
	if request.Replace {
		own, counted := l.unitsOf(replaced, in.now)
		if request.Quantity <= own {
			return false
		}
		wants -= counted
	}
	return wants > int64(l.most)
}

func (s *Sale) isOn(now time.Time) bool {
	return (s.StartsAt == nil || !now.Before(*s.StartsAt)) && (s.EndsAt == nil || now.Before(*s.EndsAt))
}

// customersSQL locks customers of groups: the variants of a group have different
// stocks, so that two transactions could count what one customer has at the same
// time. The locks are taken in one order, after those of the stocks.
const customersSQL = `
SELECT pg_advisory_xact_lock(hashtextextended(customer.name, 0))
FROM (SELECT name FROM unnest($1::text[]) AS named (name) ORDER BY name) AS customer`

// boughtSQL sums what customers hold and have committed of variants, or of the
// variants of groups. A cart whose holds name no customer is its own. Each hold
// is found by one of two indexes.
//
// A due hold counts if it cannot be locked: a transaction that has not committed
// may have extended it before it was due. Once it is locked here, it cannot be
// extended any more. A changed quantity is a new hold, so the period counts from
// held_at: from first_held_at, units that an old hold was raised by would never
// count.
const boughtSQL = `
WITH asked AS MATERIALIZED (
    SELECT w.tenant_id, w.customer_id, w.variant_id, w.of_group, coalesce($6::timestamptz - make_interval(secs => w.period), '-infinity') AS since, w.place
    FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::integer[])
         WITH ORDINALITY AS w (tenant_id, customer_id, variant_id, of_group, period, place)
), wanted AS MATERIALIZED (
    SELECT tenant_id, customer_id, variant_id, since, place
    FROM asked
    WHERE of_group = ''
    UNION ALL
    SELECT asked.tenant_id, asked.customer_id, s.variant_id, asked.since, asked.place
    FROM asked
    JOIN inventory_stocks s ON s.tenant_id = asked.tenant_id AND s.sale->>'group' = asked.of_group
    WHERE asked.of_group <> ''
), gone_of_customer AS MATERIALIZED (
    SELECT own.reservation_id
    FROM wanted
    JOIN reservations own ON own.tenant_id = wanted.tenant_id AND own.customer_id = wanted.customer_id AND own.resource_key = wanted.variant_id
    WHERE own.resource_kind = '` + Kind + `' AND own.status = 'held' AND own.expires_at <= $6
    FOR NO KEY UPDATE OF own SKIP LOCKED
), gone_of_cart AS MATERIALIZED (
    SELECT own.reservation_id
    FROM wanted
    JOIN reservations own ON same_holder(own.tenant_id, own.holder_id, wanted.tenant_id, wanted.customer_id)
                         AND same_key(own.resource_key, wanted.variant_id)
    WHERE own.resource_kind = '` + Kind + `' AND own.status = 'held' AND own.expires_at <= $6 AND own.customer_id IS NULL
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
    WHERE same_holder(own.tenant_id, own.holder_id, wanted.tenant_id, wanted.customer_id) AND same_key(own.resource_key, wanted.variant_id)
      AND own.customer_id IS NULL
) r
WHERE r.resource_kind = '` + Kind + `' AND r.status IN ('committed', 'held') AND r.held_at > wanted.since
  AND NOT (r.status = 'held' AND r.expires_at <= $6
           AND (r.reservation_id IN (SELECT reservation_id FROM gone_of_customer) OR r.reservation_id IN (SELECT reservation_id FROM gone_of_cart)))
GROUP BY wanted.place`

// readBoughtTx reads what the customers of the requests have, of variants and
// groups that limit it. Under the lock of their stock and of the customers it
// does not grow meanwhile.
func (in *inputs) readBoughtTx(ctx context.Context, tx pgx.Tx, requests []HoldRequest) error {
	if err := in.readGroupsTx(ctx, tx, requests); err != nil {
		return err
	}
	var asked columnsOfLimits
	seen := make(map[customerKey]bool)
	for i := range requests {
		c := in.counters[Ref{requests[i].TenantID, requests[i].VariantID}]
		if c == nil {
			continue
		}
		for _, l := range in.limitsOf(&requests[i], c.Sale) {
			if !seen[l.customerKey] {
				seen[l.customerKey] = true
				asked.add(&l)
			}
		}
	}
	if len(asked.keys) == 0 {
		return nil
	}
	if len(asked.locks) > 0 {
		if _, err := tx.Exec(ctx, customersSQL, asked.locks); err != nil {
			return fmt.Errorf("lock %d customers: %w", len(asked.locks), err)
		}
	}
	type sum struct{ Place, Units int64 }
	sums, err := pg.Select(ctx, tx, pgx.RowToStructByPos[sum], boughtSQL, asked.tenants, asked.customers, asked.variants, asked.groups, asked.periods, in.now)
	if err != nil {
		return fmt.Errorf("read what %d customers have: %w", len(asked.keys), err)
	}
	in.bought = make(bought, len(asked.keys))
	for _, s := range sums {
		in.bought[asked.keys[s.Place]] = s.Units
	}
	return nil
}

// columnsOfLimits are limits as one array per column, and the customers of
// groups.
type columnsOfLimits struct {
	keys                        []customerKey
	tenants                     [][16]byte
	customers, variants, groups []string
	periods                     []*int32
	locks                       []string
}

func (c *columnsOfLimits) add(l *limit) {
	c.keys, c.tenants = append(c.keys, l.customerKey), append(c.tenants, l.tenantID)
	c.customers, c.variants, c.groups = append(c.customers, l.customerID), append(c.variants, l.variantID), append(c.groups, l.group)
	c.periods = append(c.periods, l.period)
	if l.group != "" {
		c.locks = append(c.locks, fmt.Sprintf("%s %q %q", l.tenantID, l.group, l.customerID))
	}
}
