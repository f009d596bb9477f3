package inventory

import (
	"fmt"
	"maps"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/holdfast/holdfast/reservations"
)

// counterDelta is the change of one variant's counters in a transaction, in
// units.
type counterDelta struct{ stock, reserved int64 }

// ended returns the delta including the ending of a hold.
func (d counterDelta) ended(r *reservations.Reservation, to reservations.Status) counterDelta {
	d.reserved -= r.Quantity
	if to == reservations.Committed {
		d.stock -= r.Quantity
	}
	return d
}

// deltaSQL is the guard: it reserves units only if they are available, and
// gives them back only if they are reserved, whatever was read before. A
// variant whose delta would break one of the two named CHECKs matches no row,
// so that two sweeps that race log no error.
const deltaSQL = `
UPDATE inventory_stocks s
SET stock = s.stock + d.stock, reserved = s.reserved + d.reserved, updated_at = clock_timestamp()
FROM unnest($1::uuid[], $2::text[], $3::bigint[], $4::bigint[]) AS d (tenant_id, variant_id, stock, reserved)
WHERE s.tenant_id = d.tenant_id AND s.variant_id = d.variant_id
  AND (d.reserved <= 0 OR s.backorder OR s.stock - s.reserved >= d.reserved)
  AND s.reserved + d.reserved >= 0
  AND (s.reserved + d.reserved <= s.stock + d.stock OR s.backorder OR NOT s.tracked)`

// queueDeltas adds one guarded statement to b that applies the deltas, each
// variant once. A variant that the guard refuses fails the batch, and the
// transaction must be rolled back. Under the stock's lock it means that the
// counters were changed by other means than this package.
func queueDeltas(b *pgx.Batch, deltas map[Ref]counterDelta) {
	maps.DeleteFunc(deltas, func(_ Ref, d counterDelta) bool { return d == counterDelta{} })
	if len(deltas) == 0 {
		return
	}
	var (
		tenants         = make([][16]byte, 0, len(deltas))
		variants        = make([]string, 0, len(deltas))
		stock, reserved = make([]int64, 0, len(deltas)), make([]int64, 0, len(deltas))
	)
	for ref, d := range deltas {
		tenants, variants = append(tenants, ref.TenantID), append(variants, ref.VariantID)
		stock, reserved = append(stock, d.stock), append(reserved, d.reserved)
	}
	b.Queue(deltaSQL, tenants, variants, stock, reserved).Exec(func(tag pgconn.CommandTag) error {
		if got := tag.RowsAffected(); got != int64(len(deltas)) {
			return fmt.Errorf("change the counters of %d variants: the guard refused %d", len(deltas), int64(len(deltas))-got)
		}
		return nil
	})
}
