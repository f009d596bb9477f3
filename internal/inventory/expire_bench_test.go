package inventory_test

import (
	"testing"

	"github.com/holdfast/holdfast/internal/inventory"
)

// BenchmarkExpireDue expires due holds of a hundred variants, 500 at a time, in
// one pass. The rate should not depend on their number: compare
// -benchtime 60000x with 600000x.
func BenchmarkExpireDue(b *testing.B) {
	c := newCarts(b)
	const variants = 100
	c.exec(`INSERT INTO inventory_stocks (tenant_id, variant_id, stock, reserved)
		SELECT $1, 'v' || n, 1000000000, $3::integer / $2 + (n <= $3::integer % $2)::integer FROM generate_series(1, $2::integer) AS n`, c.tenant, variants, b.N)
	c.exec(`INSERT INTO reservations
			(tenant_id, reservation_id, resource_kind, resource_key, holder_id, quantity, first_held_at, held_at, expires_at)
		SELECT $1, (lpad(to_hex(n), 12, '0') || '7000' || '8' || substr(md5(n::text), 1, 15))::uuid, $2, 'v' || 1 + (n - 1) % $3::integer,
		       'cart-' || md5(n::text), 1, at, at, at + random() * interval '59 minutes'
		FROM generate_series(1, $4::integer) AS n, (SELECT clock_timestamp() - interval '1 hour' AS at) AS past`,
		c.tenant, inventory.Kind, variants, b.N)
	c.exec(`ANALYZE reservations, inventory_stocks`)
	b.ResetTimer()
	expired := 0
	expiry := inventory.NewExpiry(c.db)
	for found := 500; found == 500; {
		s, err := expiry.Next(b.Context(), 500)
		c.must(err)
		found, expired = s.Found, expired+s.Expired
	}
	b.StopTimer()
	b.ReportMetric(float64(expired)/b.Elapsed().Seconds(), "expired/s")
	if expired != b.N {
		b.Fatalf("%d were expired, want %d", expired, b.N)
	}
}
