package metered

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/unnest"
)

type scopeKey struct {
	tenant uuid.UUID
	scope  string
}

func compareScopes(a, b scopeKey) int {
	return cmp.Or(bytes.Compare(a.tenant[:], b.tenant[:]), cmp.Compare(a.scope, b.scope))
}

// lockedScope is a scope as it is under the lock. Moments are microseconds since 1970, by the scope's own clock.
type lockedScope struct {
	key      scopeKey
	lastAt   int64
	ahead    int64     // of the database's clock
	rollups  []*rollup // the one asked for last stands first
	created  bool      // by this transaction: nothing of it counts yet
	prepared bool      // and inserted with the one charge it will have, at lastAt
	pending  int       // charges to be written
	rewrite  bool      // a rollup was counted, or the clock set
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

// remember adds a rollup that the scope does not have. What is more than a scope keeps is left out when it is written:
// one group may ask about any number of windows.
func (s *lockedScope) remember(r *rollup) { s.rollups = slices.Insert(s.rollups, 0, r) }

// stepMin is what the database's clock must have been set back by for a scope to notice. Less than that only makes what
// is in the scope count for that much longer, and moments that are given a microsecond apart may be ahead as well.
const stepMin = 1 * microsPerSecond

// keepTime makes the scope's clock go on from its last moment, if the database's clock was set back behind that.
func (s *lockedScope) keepTime(now int64) {
	if behind := s.lastAt - s.clock(now); behind > stepMin {
		s.ahead += behind
		s.rewrite = true
	}
}

// clock is the scope's when the database's is now.
func (s *lockedScope) clock(now int64) int64 { return now + s.ahead }

// next is the moment of the scope's next entry: its clock's, or a microsecond after the last one.
func (s *lockedScope) next(now int64) int64 {
	if s.prepared {
		return s.lastAt
	}
	return max(s.clock(now), s.lastAt+1)
}

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
	single  map[scopeKey]Charge
	found   map[scopeKey]*lockedScope
	entries []entry
}

// newLockedScopes are those of the passes.
func newLockedScopes(passes []Pass) *lockedScopes {
	l := &lockedScopes{single: make(map[scopeKey]Charge, len(passes)), found: make(map[scopeKey]*lockedScope, len(passes))}
	l.keys = make([]scopeKey, 0, len(passes))
	for _, p := range passes {
		for _, c := range p.Reserve {
			key := scopeKey{p.TenantID, c.Scope}
			if _, again := l.single[key]; again {
				l.single[key] = Charge{}
				continue
			}
			l.single[key] = c
			l.keys = append(l.keys, key)
		}
	}
	slices.SortFunc(l.keys, compareScopes)
	return l
}

// insertScopesSQL makes the scopes that don't exist. One that is charged once is inserted as it will be if the charge is
// let through, which spares an update.
const insertScopesSQL = `
WITH now AS MATERIALIZED (
    SELECT c.at, (extract(epoch FROM c.at) * 1000000)::bigint AS micros
    FROM (SELECT clock_timestamp() AS at) AS c
)
INSERT INTO budget_scopes (tenant_id, scope, last_at, sums)
SELECT coalesce(a.tenant_id, ($1::uuid[])[1]), a.scope, now.at,
       CASE WHEN a.amount > 0 THEN ARRAY[a.seconds, now.micros / a.width, a.amount] ELSE '{}' END
FROM unnest($1::uuid[], $2::text[], $3::bigint[], $4::bigint[], $5::bigint[])
     AS a (tenant_id, scope, seconds, width, amount)
CROSS JOIN now
ON CONFLICT (tenant_id, scope) DO NOTHING
RETURNING tenant_id, scope, last_at, ahead, sums`

// queueInsert adds to b what makes the scopes that don't exist, in their order.
func (l *lockedScopes) queueInsert(b *pgx.Batch) {
	n := len(l.keys)
	tenants, scopes := scopeColumns(l.keys)
	seconds, widths, amounts := make([]int64, n), make([]int64, n), make([]int64, n)
	for i, key := range l.keys {
		c := l.single[key]
		r := rollup{seconds: int64(c.Window / time.Second)}
		seconds[i], widths[i], amounts[i] = r.seconds, max(r.width(), 1), c.Amount
	}
	b.Queue(insertScopesSQL, tenants, scopes, seconds, widths, amounts).Query(l.eachRow(func(s *lockedScope) {
		s.created, s.prepared = true, len(s.rollups) > 0
		s.rollups = nil // nothing counts before it is let through
		l.found[s.key] = s
	}))
}

const lockScopesSQL = `
SELECT s.tenant_id, s.scope, s.last_at, s.ahead, s.sums
FROM unnest($1::uuid[], $2::text[]) AS asked (tenant_id, scope)
JOIN budget_scopes s ON s.tenant_id = coalesce(asked.tenant_id, ($1::uuid[])[1]) AND s.scope = asked.scope
WHERE $3 OR s.xmin <> pg_current_xact_id()::xid
ORDER BY s.tenant_id, s.scope
FOR NO KEY UPDATE OF s`

// queueLock adds to b what locks the scopes in their order; all, or those that this transaction has not written.
//
// Who has begun to lock waits only for others who have, further on in the order; who still inserts, only for others who
// inserted, further on, or lock already. So nobody waits in a circle.
func (l *lockedScopes) queueLock(b *pgx.Batch, all bool) {
	tenants, scopes := scopeColumns(l.keys)
	b.Queue(lockScopesSQL, tenants, scopes, all).Query(l.eachRow(func(s *lockedScope) {
		if l.found[s.key] == nil {
			l.found[s.key] = s
		}
	}))
}

// scopeRow is a row of budget_scopes.
type scopeRow struct {
	TenantID [16]byte
	Scope    string
	LastAt   time.Time
	Ahead    int64
	Sums     []int64
}

// eachRow reads the rows of scopes.
func (l *lockedScopes) eachRow(take func(*lockedScope)) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		var r scopeRow
		_, err := pgx.ForEachRow(rows, []any{&r.TenantID, &r.Scope, &r.LastAt, &r.Ahead, &r.Sums}, func() error {
			s := &lockedScope{key: scopeKey{r.TenantID, r.Scope}, lastAt: r.LastAt.UnixMicro(), ahead: r.Ahead}
			for sums := r.Sums; len(sums) >= 3; sums = sums[3:] {
				if n := len(s.rollups); n == 0 || s.rollups[n-1].seconds != sums[0] {
					s.rollups = append(s.rollups, &rollup{seconds: sums[0]})
				}
				last := s.rollups[len(s.rollups)-1]
				last.buckets = append(last.buckets, bucket{sums[1], sums[2]})
			}
			take(s)
			return nil
		})
		return err
	}
}

// scopeColumns are the keys as Postgres takes them, the tenant once if all are of one. A uuid.UUID would be a detour for
// pgx: it tries it as text first.
func scopeColumns(keys []scopeKey) (tenants [][16]byte, scopes []string) {
	tenants, scopes = make([][16]byte, len(keys)), make([]string, len(keys))
	for i, k := range keys {
		tenants[i], scopes[i] = k.tenant, k.scope
	}
	return unnest.Once(tenants), scopes
}

const clockSQL = `SELECT clock_timestamp()`

// lockTx makes the scopes, locks them and the tokens, in one round trip, and returns the moment after. A scope is found
// missing if it was purged in between, or if this transaction wrote it before: then it is looked for once more.
func lockTx(ctx context.Context, tx pgx.Tx, scopes *lockedScopes, tokens *lockedTokens, passes []Pass) (now time.Time, err error) {
	for attempt := range lockAttempts {
		b := &pgx.Batch{}
		if len(scopes.keys) > 0 {
			scopes.queueInsert(b)
			scopes.queueLock(b, attempt > 0)
		}
		tokens.queueLock(b, passes)
		b.Queue(clockSQL).QueryRow(func(row pgx.Row) error { return row.Scan(&now) })
		if err := tx.SendBatch(ctx, b).Close(); err != nil {
			return now, err
		}
		if len(scopes.found) == len(scopes.keys) {
			for _, s := range scopes.found {
				s.keepTime(now.UnixMicro())
			}
			return now, nil
		}
	}
	return now, errScopesPurged
}

// lockAttempts bounds the tries to lock scopes that are purged each time between being found and being locked.
const lockAttempts = 4

var errScopesPurged = errors.New("scopes were purged while being locked")

// moment is a time from microseconds since 1970.
func moment(micros int64) time.Time { return time.UnixMicro(micros).UTC() }
