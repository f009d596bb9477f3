package reservationrows

import (
	"context"
	"slices"

	"github.com/google/uuid"

	"github.com/holdfast/holdfast/audit"
)

// nextDueSQL reads the holds of all tenants in the order of their deadlines, at
// most $4, and selects those of one. The inner columns are those of
// reservations_due_idx and of its predicate.
const nextDueSQL = `
SELECT ` + columns + `
FROM (
    SELECT next.*
    FROM reservations next
    WHERE next.ended_at IS NULL AND next.expires_at > (SELECT clock_timestamp())
    ORDER BY next.expires_at
    LIMIT $4
) r
WHERE r.tenant_id = $1 AND r.resource_kind = $2
ORDER BY r.expires_at
LIMIT $3`

// nextDueOfTenantSQL reads at most $4 holds of the tenant by
// reservations_held_idx, which orders them by resource.
const nextDueOfTenantSQL = `
SELECT ` + columns + `
FROM (
    SELECT held.*
    FROM reservations held
    WHERE held.tenant_id = $1 AND held.status = 'held'
    ORDER BY held.tenant_id, held.resource_key, held.expires_at
    LIMIT $4
) r
WHERE r.resource_kind = $2 AND r.expires_at > (SELECT clock_timestamp())
ORDER BY r.expires_at
LIMIT $3`

// nextDueScan is how many holds NextDue reads at most, of all tenants and then
// of the tenant.
const nextDueScan = 5000

// NextDue returns up to limit holds of a kind that are not due yet, those with
// the earliest deadlines first.
//
// No index has the holds of one tenant in the order of their deadlines. If
// fewer than limit of the next 5,000 holds of all tenants are the tenant's,
// NextDue reads the tenant's own, at most 5,000. So a tenant with more holds,
// few of them among the next of all tenants, may not see its earliest
// deadlines.
func NextDue(ctx context.Context, db audit.Querier, tenantID uuid.UUID, kind string, limit int) ([]Reservation, error) {
	next, err := collect(ctx, db, toReservation, "next due "+kind, nextDueSQL, tenantID, kind, limit, nextDueScan)
	if err != nil || len(next) == limit {
		return next, err
	}
	own, err := collect(ctx, db, toReservation, "next due "+kind, nextDueOfTenantSQL, tenantID, kind, limit, nextDueScan)
	if err != nil {
		return nil, err
	}
	for _, r := range own {
		if !slices.ContainsFunc(next, func(n Reservation) bool { return n.ReservationID == r.ReservationID }) {
			next = append(next, r)
		}
	}
	slices.SortFunc(next, func(a, b Reservation) int { return a.ExpiresAt.Compare(b.ExpiresAt) })
	return next[:min(limit, len(next))], nil
}
