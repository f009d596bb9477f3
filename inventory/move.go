package inventory

import (
	"fmt"
	"maps"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/holdfast/holdfast/reservations"
)

// move is what a transaction does to one variant's counters, in units.
type move struct{ stock, reserved int64 }

// ended is the move with the end of a hold.
func (m move) ended(r *reservations.Reservation, to reservations.Status) move {
	m.reserved -= r.Quantity
	if to == reservations.Committed {
		m.stock -= r.Quantity
	}
	return m
}

// moveSQL is the guard: units are reserved only where they are available, and go back only where they are reserved,
// whatever was read before. A variant whose move would break one of the two named CHECKs matches no row, so that two
// sweeps that race log no error.
const moveSQL = `
UPDATE inventory_stocks s
SET stock = s.stock + m.stock, reserved = s.reserved + m.reserved, updated_at = clock_timestamp()
FROM unnest($1::uuid[], $2::text[], $3::bigint[], $4::bigint[]) AS m (tenant_id, variant_id, stock, reserved)
WHERE s.tenant_id = m.tenant_id AND s.variant_id = m.variant_id
  AND (m.reserved <= 0 OR s.backorder OR s.stock - s.reserved >= m.reserved)
  AND s.reserved + m.reserved >= 0
  AND (s.reserved + m.reserved <= s.stock + m.stock OR s.backorder OR NOT s.tracked)`

// queueMoves adds one guarded statement to b that applies the moves, each variant once. A variant whose guard refuses
// fails the batch: under the stock's lock that means somebody wrote past it, and the transaction must be rolled back.
func queueMoves(b *pgx.Batch, moves map[Ref]move) {
	maps.DeleteFunc(moves, func(_ Ref, m move) bool { return m == move{} })
	if len(moves) == 0 {
		return
	}
	var (
		tenants         = make([][16]byte, 0, len(moves))
		variants        = make([]string, 0, len(moves))
		stock, reserved = make([]int64, 0, len(moves)), make([]int64, 0, len(moves))
	)
	for ref, m := range moves {
		tenants, variants = append(tenants, ref.TenantID), append(variants, ref.VariantID)
		stock, reserved = append(stock, m.stock), append(reserved, m.reserved)
	}
	b.Queue(moveSQL, tenants, variants, stock, reserved).Exec(func(tag pgconn.CommandTag) error {
		if got := tag.RowsAffected(); got != int64(len(moves)) {
			return fmt.Errorf("move the counters of %d variants: the guard refused %d", len(moves), int64(len(moves))-got)
		}
		return nil
	})
}
