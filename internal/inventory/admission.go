package inventory

import (
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// tokenRequiredSQL returns all the variants, because a condition on the stocks
// would let a plan begin with every variant that requires a token.
const tokenRequiredSQL = `
SELECT a.tenant_id, a.variant_id, s.admission IS NOT DISTINCT FROM 'token'
FROM unnest($1::uuid[], $2::text[]) AS a (tenant_id, variant_id)
LEFT JOIN inventory_stocks s ON s.tenant_id = a.tenant_id AND s.variant_id = a.variant_id`

// QueueTokenRequired adds to b what reads which of the asks are for a variant
// that requires an admission token. The map has an entry for each variant.
func QueueTokenRequired(b *pgx.Batch, asks []HoldRequest) map[Ref]bool {
	required := make(map[Ref]bool, 1)
	var tenants [][16]byte
	var variants []string
	for i := range asks {
		v := Ref{asks[i].TenantID, asks[i].VariantID}
		if _, known := required[v]; !known {
			required[v] = false
			tenants, variants = append(tenants, v.TenantID), append(variants, v.VariantID)
		}
	}
	b.Queue(tokenRequiredSQL, tenants, variants).Query(func(rows pgx.Rows) error {
		var tenant [16]byte
		var variant string
		var token bool
		_, err := pgx.ForEachRow(rows, []any{&tenant, &variant, &token}, func() error {
			required[Ref{tenant, variant}] = token
			return nil
		})
		return err
	})
	return required
}

// coveredSQL finds the requests for a quantity that the cart holds already.
// What is held is filtered from the cart's holds, not by a condition on them:
// an index would then list all that is held of the variant.
const coveredSQL = `
SELECT a.tenant_id, a.request_id
FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::text[], $5::bigint[]) AS a (tenant_id, request_id, cart_id, variant_id, quantity)
WHERE a.quantity <= (
    SELECT sum(r.quantity) FILTER (WHERE r.status = 'held' AND r.expires_at > clock_timestamp())
    FROM reservations r
    WHERE same_holder(r.tenant_id, r.holder_id, a.tenant_id, a.cart_id) AND same_key(r.resource_key, a.variant_id)
        AND r.resource_kind = '` + Kind + `' AND r.allotment_id IS NULL
)`

// QueueCovered adds to b what reads which of the asks that replace a quantity
// ask for no more than their cart holds, and gives the ids of these requests to
// found.
func QueueCovered(b *pgx.Batch, asks []HoldRequest, found func(tenantID, requestID uuid.UUID)) {
	var tenants, ids [][16]byte
	var carts, variants []string
	var quantities []int64
	for i := range asks {
		if a := &asks[i]; a.Replace && a.AllotmentID == "" {
			tenants, ids, quantities = append(tenants, a.TenantID), append(ids, a.RequestID), append(quantities, a.Quantity)
			carts, variants = append(carts, a.CartID), append(variants, a.VariantID)
		}
	}
	if len(ids) == 0 {
		return
	}
	b.Queue(coveredSQL, tenants, ids, carts, variants, quantities).Query(func(rows pgx.Rows) error {
		var tenant, id [16]byte
		_, err := pgx.ForEachRow(rows, []any{&tenant, &id}, func() error {
			found(tenant, id)
			return nil
		})
		return err
	})
}
