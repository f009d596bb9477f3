package metered

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

const scopeSQL = `
SELECT coalesce(s.sums, '{}'), coalesce(s.last_at, 'epoch'), coalesce(s.ahead, 0), clock_timestamp()
FROM (SELECT $1::uuid AS tenant_id, $2::text AS scope) AS asked
LEFT JOIN budget_scopes s USING (tenant_id, scope)`

const sumSQL = `
SELECT least(coalesce(sum(l.amount), 0), 9223372036854775807)::bigint
FROM budget_ledger l
WHERE l.tenant_id = $1 AND l.scope = $2 AND l.recorded_at >= $3
  AND (l.reserved_at IS NULL OR l.reserved_at >= $3)`

// WindowedSum is what counts in the scope now: what [BudgetLedger.TryReserveTx] would compare with a limit. It only reads.
// If the scope was charged under that window lately it costs one row, whatever the ledger holds; for another window it
// reads the ledger's rows of that time.
func (l *BudgetLedger) WindowedSum(ctx context.Context, tenantID uuid.UUID, scope string, window time.Duration) (int64, error) {
	if err := validateTenant(tenantID); err != nil {
		return 0, err
	}
	if err := validateText("scope", scope, TextMax); err != nil {
		return 0, err
	}
	if err := validateWindow(window, l.windowMax); err != nil {
		return 0, err
	}
	var (
		sums        []int64
		lastAt, now time.Time
		s           lockedScope // though not locked
	)
	if err := l.db.QueryRow(ctx, scopeSQL, tenantID, scope).Scan(&sums, &lastAt, &s.ahead, &now); err != nil {
		return 0, fmt.Errorf("sum of %s: %w", scope, err)
	}
	s.lastAt = lastAt.UnixMicro()
	s.keepTime(now.UnixMicro())
	clock := s.clock(now.UnixMicro())
	r := rollup{seconds: int64(window / time.Second)}
	for rest := sums; len(rest) >= 3; rest = rest[3:] {
		if rest[0] == r.seconds {
			r.buckets = append(r.buckets, bucket{rest[1], rest[2]})
		}
	}
	if len(r.buckets) > 0 || len(sums) == 0 { // a scope without any sums has no entries that count
		return r.sum(clock), nil
	}
	rows, err := l.db.Query(ctx, sumSQL, tenantID, scope, moment(r.oldest(clock)*r.width()))
	if err != nil {
		return 0, fmt.Errorf("sum of %s: %w", scope, err)
	}
	sum, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[int64])
	if err != nil {
		return 0, fmt.Errorf("sum of %s: %w", scope, err)
	}
	return sum, nil
}
