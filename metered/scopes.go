package metered

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/pg"
)

// lockedScope is the row of a scope, read under the lock. Moments are
// microseconds since 1970, by the scope's own clock.
type lockedScope struct {
	name     string
	lastAt   int64
	ahead    int64     // of the database's clock
	rollups  []*rollup // the one used last comes first
	created  bool      // by this transaction: nothing in it counts yet
	prepared bool      // inserted with its one charge, at lastAt
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

// addRollup adds a rollup that the scope does not have. Those beyond windowsMax
// are left out when the scope is written: one command may use more windows.
func (s *lockedScope) addRollup(r *rollup) { s.rollups = slices.Insert(s.rollups, 0, r) }

// clockStepMin is the least step back of the database's clock for which a scope
// adjusts its own. After a smaller step, amounts in the scope only count longer
// by that step. Entries that are moved a microsecond apart may also be ahead of
// the clock.
const clockStepMin = 1 * microsPerSecond

// adjustClock makes the scope's clock go on from its last moment, if the
// database's clock was set back behind that.
func (s *lockedScope) adjustClock(now int64) {
	if behind := s.lastAt - s.clock(now); behind > clockStepMin {
		s.ahead += behind
		s.rewrite = true
	}
}

// clock is the scope's clock when the database's is now.
func (s *lockedScope) clock(now int64) int64 { return now + s.ahead }

// next is the moment of the scope's next entry: now by its clock, or a
// microsecond after the last one.
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

// entry is a row of the ledger to be inserted.
type entry struct {
	scope      *lockedScope
	at, amount int64
	before     int64 // the scope's last moment before
	reservedAt *time.Time
}

// lockedScopes are the scopes of one tenant that a command charges.
type lockedScopes struct {
	tenant  uuid.UUID
	names   []string          // sorted
	single  map[string]Charge // the charge of a scope that is charged once
	found   map[string]*lockedScope
	entries []entry
}

// newLockedScopes are those of the charges.
func newLockedScopes(tenant uuid.UUID, charges []Charge) *lockedScopes {
	l := &lockedScopes{tenant: tenant, single: make(map[string]Charge, len(charges)), found: make(map[string]*lockedScope, len(charges))}
	for _, c := range charges {
		if _, again := l.single[c.Scope]; again {
			l.single[c.Scope] = Charge{}
			continue
		}
		l.single[c.Scope] = c
		l.names = append(l.names, c.Scope)
	}
	slices.Sort(l.names)
	return l
}

// insertScopesSQL inserts the scopes that don't exist. A scope that is charged
// once is inserted as it will be if the charge is granted, which saves an
// update.
const insertScopesSQL = `
WITH now AS MATERIALIZED (
    SELECT c.at, (extract(epoch FROM c.at) * 1000000)::bigint AS micros
    FROM (SELECT clock_timestamp() AS at) AS c
)
INSERT INTO budget_scopes (tenant_id, scope, last_at, sums)
SELECT $1, a.scope, now.at,
       CASE WHEN a.amount > 0 THEN ARRAY[a.seconds, now.micros / a.width, a.amount] ELSE '{}' END
FROM unnest($2::text[], $3::bigint[], $4::bigint[], $5::bigint[]) AS a (scope, seconds, width, amount)
CROSS JOIN now
ON CONFLICT (tenant_id, scope) DO NOTHING
RETURNING scope, last_at, ahead, sums`

// queueInsert adds to b what inserts the scopes that don't exist, in their
// order.
func (l *lockedScopes) queueInsert(b *pgx.Batch) {
	n := len(l.names)
	seconds, widths, amounts := make([]int64, n), make([]int64, n), make([]int64, n)
	for i, name := range l.names {
		c := l.single[name]
		r := rollup{seconds: int64(c.Window / time.Second)}
		seconds[i], widths[i], amounts[i] = r.seconds, max(r.width(), 1), c.Amount
	}
	b.Queue(insertScopesSQL, l.tenant, l.names, seconds, widths, amounts).Query(l.eachRow(func(s *lockedScope) {
		s.created, s.prepared = true, len(s.rollups) > 0
		s.rollups = nil // nothing counts before the charge is granted
		l.found[s.name] = s
	}))
}

const lockScopesSQL = `
SELECT s.scope, s.last_at, s.ahead, s.sums
FROM budget_scopes s
WHERE s.tenant_id = $1 AND s.scope = ANY ($2::text[]) AND ($3 OR s.xmin <> pg_current_xact_id()::xid)
ORDER BY s.scope
FOR NO KEY UPDATE OF s`

// queueLock adds to b what locks the scopes in their order: all, or those that
// this transaction has not written.
//
// A transaction that is locking waits only for others that are locking, further
// on in the order. One that still inserts waits only for others that inserted,
// further on, or are locking already. So there is no deadlock.
func (l *lockedScopes) queueLock(b *pgx.Batch, all bool) {
	b.Queue(lockScopesSQL, l.tenant, l.names, all).Query(l.eachRow(func(s *lockedScope) {
		if l.found[s.name] == nil {
			l.found[s.name] = s
		}
	}))
}

// eachRow reads the rows of scopes.
func (l *lockedScopes) eachRow(take func(*lockedScope)) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		var (
			row    lockedScope
			lastAt time.Time
			sums   []int64
		)
		_, err := pgx.ForEachRow(rows, []any{&row.name, &lastAt, &row.ahead, &sums}, func() error {
			s := &lockedScope{name: row.name, lastAt: lastAt.UnixMicro(), ahead: row.ahead}
			for ; len(sums) >= 3; sums = sums[3:] {
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

// lockTx inserts the scopes that don't exist and locks all of them and what
// queueMore adds, in one round trip, and returns the database's clock after
// that. A scope is missing if it was purged in between, or if this transaction
// wrote it before: then lockTx looks for it once more.
func (l *lockedScopes) lockTx(ctx context.Context, tx pgx.Tx, queueMore func(b *pgx.Batch)) (now time.Time, err error) {
	for attempt := range lockAttempts {
		b := &pgx.Batch{}
		if len(l.names) > 0 {
			l.queueInsert(b)
			l.queueLock(b, attempt > 0)
		}
		queueMore(b)
		pg.QueueClock(b, &now)
		if err := tx.SendBatch(ctx, b).Close(); err != nil {
			return now, err
		}
		if len(l.found) == len(l.names) {
			for _, s := range l.found {
				s.adjustClock(now.UnixMicro())
			}
			return now, nil
		}
	}
	return now, errors.New("scopes were purged while being locked")
}

// lockAttempts bounds the attempts to lock scopes that are purged each time
// between the insert and the lock.
const lockAttempts = 4

// moment is a time from microseconds since 1970.
func moment(micros int64) time.Time { return time.UnixMicro(micros).UTC() }
