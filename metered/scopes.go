package metered

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

type scopeKey struct {
	tenant uuid.UUID
	scope  string
}

func compareScopes(a, b scopeKey) int {
	return cmp.Or(bytes.Compare(a.tenant[:], b.tenant[:]), cmp.Compare(a.scope, b.scope))
}

// lockedScope is a scope as it is under the lock. Moments are microseconds since 1970.
type lockedScope struct {
	key     scopeKey
	lastAt  int64
	rollups []*rollup // the one asked for last stands first
	created bool      // by this transaction: the ledger has nothing of it that counts
	pending int       // entries to be written
	rebuilt bool      // a rollup was counted from the ledger
}

func (s *lockedScope) rollup(seconds int64) *rollup {
	for i, r := range s.rollups {
		if r.seconds == seconds {
			copy(s.rollups[1:i+1], s.rollups[:i])
			s.rollups[0] = r
			return r
		}
	}
	return nil
}

// remember adds a rollup that the scope does not have, in place of the one not asked for the longest.
func (s *lockedScope) remember(r *rollup) {
	s.rollups = slices.Insert(s.rollups[:min(len(s.rollups), windowsMax-1)], 0, r)
}

// next is the moment of the scope's next entry: now, or a microsecond after the last one.
func (s *lockedScope) next(now int64) int64 { return max(now, s.lastAt+1) }

// add counts an amount in every window.
func (s *lockedScope) add(at, amount int64) bool {
	for _, r := range s.rollups {
		if !r.add(at, amount) {
			return false
		}
	}
	return true
}

// entry is a row of the ledger to be written.
type entry struct {
	scope      *lockedScope
	at, amount int64
	before     int64 // the scope's last moment before
	reservedAt *time.Time
}

// lockedScopes are the scopes that a group charges.
type lockedScopes struct {
	keys    []scopeKey // sorted
	found   map[scopeKey]*lockedScope
	created map[scopeKey]bool
	entries []entry
}

func newLockedScopes(keys []scopeKey) *lockedScopes {
	slices.SortFunc(keys, compareScopes)
	return &lockedScopes{keys: slices.Compact(keys), created: make(map[scopeKey]bool)}
}

const insertScopesSQL = `
INSERT INTO budget_scopes (tenant_id, scope)
SELECT asked.tenant_id, asked.scope
FROM unnest($1::uuid[], $2::text[]) AS asked (tenant_id, scope)
ON CONFLICT (tenant_id, scope) DO NOTHING
RETURNING tenant_id, scope`

const lockScopesSQL = `
SELECT s.tenant_id, s.scope, s.last_at, s.window_seconds, s.bucket, s.amount
FROM unnest($1::uuid[], $2::text[]) AS asked (tenant_id, scope)
JOIN budget_scopes s USING (tenant_id, scope)
ORDER BY s.tenant_id, s.scope COLLATE "C"
FOR NO KEY UPDATE OF s`

// queueLock adds to b what makes the scopes that don't exist, if they are to be made, and then locks all, in order. Who
// has begun to lock waits only for others who have, further on in the order, so nobody waits in a circle.
func (l *lockedScopes) queueLock(b *pgx.Batch, create bool) {
	l.found = make(map[scopeKey]*lockedScope, len(l.keys))
	if len(l.keys) == 0 {
		return
	}
	tenants, scopes := scopeColumns(l.keys)
	if create {
		b.Queue(insertScopesSQL, tenants, scopes).Query(func(rows pgx.Rows) error {
			var key scopeKey
			_, err := pgx.ForEachRow(rows, []any{&key.tenant, &key.scope}, func() error {
				l.created[key] = true
				return nil
			})
			return err
		})
	}
	b.Queue(lockScopesSQL, tenants, scopes).Query(func(rows pgx.Rows) error {
		var (
			key                      scopeKey
			lastAt                   time.Time
			seconds, indexes, amount []int64
		)
		_, err := pgx.ForEachRow(rows, []any{&key.tenant, &key.scope, &lastAt, &seconds, &indexes, &amount}, func() error {
			s := &lockedScope{key: key, lastAt: lastAt.UnixMicro(), created: l.created[key]}
			for i := range seconds {
				if i == 0 || seconds[i] != seconds[i-1] {
					s.rollups = append(s.rollups, &rollup{seconds: seconds[i]})
				}
				r := s.rollups[len(s.rollups)-1]
				r.buckets = append(r.buckets, bucket{indexes[i], amount[i]})
			}
			l.found[key] = s
			return nil
		})
		return err
	})
}

func scopeColumns(keys []scopeKey) (tenants []uuid.UUID, scopes []string) {
	tenants, scopes = make([]uuid.UUID, len(keys)), make([]string, len(keys))
	for i, k := range keys {
		tenants[i], scopes[i] = k.tenant, k.scope
	}
	return tenants, scopes
}

const clockSQL = `SELECT clock_timestamp()`

// lockTx locks the scopes and the tokens in one round trip and returns the moment after.
func lockTx(ctx context.Context, tx pgx.Tx, scopes *lockedScopes, create bool, tokens *lockedTokens, passes []Pass) (now time.Time, err error) {
	for range lockAttempts {
		b := &pgx.Batch{}
		scopes.queueLock(b, create)
		tokens.queueLock(b, passes)
		b.Queue(clockSQL).QueryRow(func(row pgx.Row) error { return row.Scan(&now) })
		if err := tx.SendBatch(ctx, b).Close(); err != nil {
			return now, err
		}
		if !create || len(scopes.found) == len(scopes.keys) {
			return now, nil
		}
	}
	return now, errScopesPurged
}

// lockAttempts bounds the tries to lock scopes that are purged each time between being found and being locked.
const lockAttempts = 3

var errScopesPurged = errors.New("scopes were purged while being locked")

const rebuildSQL = `
SELECT w.tenant_id, w.scope, w.seconds, counted.bucket, counted.amount
FROM unnest($1::uuid[], $2::text[], $3::bigint[], $4::bigint[], $5::timestamptz[])
     AS w (tenant_id, scope, seconds, width, since)
CROSS JOIN LATERAL (
    SELECT (extract(epoch FROM coalesce(l.reserved_at, l.recorded_at)) * 1000000)::bigint / w.width AS bucket,
           least(sum(l.amount), 9223372036854775807)::bigint AS amount
    FROM budget_ledger l
    WHERE l.tenant_id = w.tenant_id AND l.scope = w.scope AND l.recorded_at >= w.since
      AND (l.reserved_at IS NULL OR l.reserved_at >= w.since)
    GROUP BY 1
) counted
ORDER BY w.tenant_id, w.scope, w.seconds, counted.bucket`

// rebuildTx counts from the ledger the windows that the scopes don't keep. It comes after the lock.
func (l *lockedScopes) rebuildTx(ctx context.Context, tx pgx.Tx, passes []Pass, now int64) error {
	var (
		keys           []scopeKey
		seconds, width []int64
		since          []time.Time
	)
	for _, p := range passes {
		for _, c := range p.Reserve {
			s, r := l.found[scopeKey{p.TenantID, c.Scope}], &rollup{seconds: int64(c.Window / time.Second)}
			if s == nil || s.rollup(r.seconds) != nil {
				continue
			}
			s.remember(r)
			if s.created {
				continue
			}
			s.rebuilt = true
			keys, seconds, width = append(keys, s.key), append(seconds, r.seconds), append(width, r.width())
			since = append(since, moment(r.oldest(now)*r.width()))
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
	TenantID               uuid.UUID
	Scope                  string
	Seconds, Index, Amount int64
}

// moment is a time from microseconds since 1970.
func moment(micros int64) time.Time { return time.UnixMicro(micros).UTC() }
