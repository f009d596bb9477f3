package migrations_test

import (
	"testing"

	"github.com/holdfast/holdfast/internal/pgtest"
)

// Two carts, two tenants or two keys that have one hash are not the same.
func TestOneHashIsNotOneHolder(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	for what, sql := range map[string]string{
		"carts": `
WITH pair AS (
    SELECT tenant_id, min(cart) AS one, max(cart) AS other
    FROM (SELECT md5('')::uuid AS tenant_id, 'cart-' || n AS cart FROM generate_series(1, 300000) AS n) carts
    GROUP BY tenant_id, holder_hash(tenant_id, cart)
    HAVING count(*) > 1
)
SELECT count(*), count(*) FILTER (WHERE same_holder(tenant_id, one, tenant_id, other)), count(*) FILTER (WHERE same_holder(tenant_id, one, tenant_id, one))
FROM pair`,
		"tenants": `
WITH pair AS (
    SELECT min(tenant)::uuid AS one, max(tenant)::uuid AS other
    FROM (SELECT md5(n::text) AS tenant FROM generate_series(1, 300000) AS n) tenants
    GROUP BY holder_hash(tenant::uuid, 'cart')
    HAVING count(*) > 1
)
SELECT count(*), count(*) FILTER (WHERE same_holder(one, 'cart', other, 'cart')), count(*) FILTER (WHERE same_holder(one, 'cart', one, 'cart'))
FROM pair`,
		"keys": `
WITH pair AS (
    SELECT min(key) AS one, max(key) AS other
    FROM (SELECT 'variant-' || n AS key FROM generate_series(1, 300000) AS n) keys
    GROUP BY hashtext(key)
    HAVING count(*) > 1
)
SELECT count(*), count(*) FILTER (WHERE same_key(one, other)), count(*) FILTER (WHERE same_key(one, one))
FROM pair`,
	} {
		var pairs, confused, same int
		if err := db.QueryRow(t.Context(), sql).Scan(&pairs, &confused, &same); err != nil {
			t.Fatal(err)
		}
		if pairs == 0 || confused > 0 || same != pairs {
			t.Errorf("of %d pairs of %s with one hash, %d are the same, and %d equal themselves", pairs, what, confused, same)
		}
	}
}
