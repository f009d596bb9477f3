package metered

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

const rebuildSQL = `
SELECT coalesce(w.tenant_id, ($1::uuid[])[1]), w.scope, w.seconds, counted.bucket, counted.amount
FROM unnest($1::uuid[], $2::text[], $3::bigint[], $4::bigint[], $5::timestamptz[])
     AS w (tenant_id, scope, seconds, width, since)
CROSS JOIN LATERAL (
    SELECT (extract(epoch FROM coalesce(l.reserved_at, l.recorded_at)) * 1000000)::bigint / w.width AS bucket,
           least(sum(l.amount), 9223372036854775807)::bigint AS amount
    FROM budget_ledger l
    WHERE l.tenant_id = coalesce(w.tenant_id, ($1::uuid[])[1]) AND l.scope = w.scope AND l.recorded_at >= w.since
      AND (l.reserved_at IS NULL OR l.reserved_at >= w.since)
    GROUP BY 1
) counted
ORDER BY 1, w.scope, w.seconds, counted.bucket`

// rebuildTx counts the windows that the scopes are asked for and don't keep, from the ledger. It comes after the lock.
func (l *lockedScopes) rebuildTx(ctx context.Context, tx pgx.Tx, passes []Pass, now int64) error {
	var (
		keys           []scopeKey
		seconds, width []int64
		since          []time.Time
	)
	for _, p := range passes {
		for _, c := range p.Reserve {
			s, r := l.found[scopeKey{p.TenantID, c.Scope}], &rollup{seconds: int64(c.Window / time.Second)}
			if s.rollup(r.seconds) != nil {
				continue
			}
			if !s.created {
				s.rewrite = true
				keys, seconds, width = append(keys, s.key), append(seconds, r.seconds), append(width, r.width())
				since = append(since, moment(r.oldest(s.clock(now))*r.width()))
			}
			s.remember(r)
		}
	}
	if len(keys) == 0 {
		return nil
	}
	tenants, scopes := scopeColumns(keys)
	rows, err := tx.Query(ctx, rebuildSQL, tenants, scopes, seconds, width, since)
	if err != nil {
		return fmt.Errorf("count %d windows: %w", len(keys), err)
	}
	counted, err := pgx.CollectRows(rows, pgx.RowToStructByPos[countedBucket])
	if err != nil {
		return fmt.Errorf("count %d windows: %w", len(keys), err)
	}
	for _, c := range counted {
		if r := l.found[scopeKey{c.TenantID, c.Scope}].rollup(c.Seconds); r != nil {
			r.buckets = append(r.buckets, bucket{c.Index, c.Amount})
		}
	}
	return nil
}

type countedBucket struct {
	TenantID               [16]byte
	Scope                  string
	Seconds, Index, Amount int64
}
