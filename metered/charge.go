package metered

import (
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
)

// charge decides the charges of one pass, in their order: all are reserved, or, if one does not fit or the pass is not
// to be let through for another reason, none. It says how the budgets stand then, and which charge was the first not to
// fit.
func (l *lockedScopes) charge(p *Pass, allowed bool, now int64) ([]Budget, error) {
	budgets := make([]Budget, len(p.Reserve))
	first, fit := len(l.entries), len(p.Reserve)
	for i, c := range p.Reserve {
		s := l.found[scopeKey{p.TenantID, c.Scope}]
		r := s.rollup(int64(c.Window / time.Second))
		if c.Amount > c.Limit-r.sum(s.clock(now)) {
			fit = i
			break
		}
		e := entry{scope: s, at: s.next(now), amount: c.Amount, before: s.lastAt}
		s.add(e.at, e.amount) // fits: it is within the limit
		s.lastAt = e.at
		s.pending++
		l.entries = append(l.entries, e)
		budgets[i] = Budget{Reserved: true, Reservation: Reservation{c.Scope, moment(e.at), c.Amount}}
	}
	if fit < len(p.Reserve) || !allowed {
		l.undo(first)
		clear(budgets)
	}
	for i, c := range p.Reserve {
		s, b := l.found[scopeKey{p.TenantID, c.Scope}], &budgets[i]
		r, clock := s.rollup(int64(c.Window/time.Second)), s.clock(now)
		b.Remaining = max(c.Limit-r.sum(clock), 0)
		b.Reset = time.Duration(r.reset(clock)) * time.Microsecond
		if !b.Reserved {
			b.Wait = time.Duration(r.wait(clock, c.Amount, c.Limit)) * time.Microsecond
		}
	}
	if fit < len(p.Reserve) {
		return budgets, &OverBudgetError{Charge: p.Reserve[fit], Remaining: budgets[fit].Remaining, Wait: budgets[fit].Wait}
	}
	return budgets, nil
}

// undo takes back the entries from the first on.
func (l *lockedScopes) undo(first int) {
	for len(l.entries) > first {
		e := l.entries[len(l.entries)-1]
		l.entries = l.entries[:len(l.entries)-1]
		e.scope.add(e.at, -e.amount)
		e.scope.lastAt = e.before
		e.scope.pending--
	}
}

const updateScopesSQL = `
UPDATE budget_scopes s
SET last_at = u.last_at, ahead = u.ahead, sums = u.sums::bigint[]
FROM unnest($1::uuid[], $2::text[], $3::timestamptz[], $4::bigint[], $5::text[]) AS u (tenant_id, scope, last_at, ahead, sums)
WHERE s.tenant_id = coalesce(u.tenant_id, ($1::uuid[])[1]) AND s.scope = u.scope`

const deleteScopesSQL = `
DELETE FROM budget_scopes s
USING unnest($1::uuid[], $2::text[]) AS unused (tenant_id, scope)
WHERE s.tenant_id = coalesce(unused.tenant_id, ($1::uuid[])[1]) AND s.scope = unused.scope`

const insertEntriesSQL = `
INSERT INTO budget_ledger (tenant_id, scope, recorded_at, amount, reserved_at)
SELECT coalesce(e.tenant_id, ($1::uuid[])[1]), e.scope, e.recorded_at, e.amount, e.reserved_at
FROM unnest($1::uuid[], $2::text[], $3::timestamptz[], $4::bigint[], $5::timestamptz[])
     AS e (tenant_id, scope, recorded_at, amount, reserved_at)`

// queueWrite adds to b what writes the entries and the sums, and removes the scopes that were made for nothing.
func (l *lockedScopes) queueWrite(b *pgx.Batch, now int64) {
	var (
		changed, unused []scopeKey
		lastAt          []time.Time
		ahead           []int64
		sums            []string
	)
	for _, key := range l.keys {
		switch s := l.found[key]; {
		case s.created && s.pending == 0:
			unused = append(unused, key)
		case s.prepared: // inserted as it is now
		case s.pending > 0 || s.rewrite:
			// The sums forget what has left its window by now. If the database's clock is set back behind this moment, the
			// scope's clock must not go back further than the sums know.
			s.lastAt = max(s.lastAt, s.clock(now))
			changed, lastAt, ahead = append(changed, key), append(lastAt, moment(s.lastAt)), append(ahead, s.ahead)
			sums = append(sums, s.sums(s.clock(now)))
		}
	}
	if len(changed) > 0 {
		tenants, scopes := scopeColumns(changed)
		b.Queue(updateScopesSQL, tenants, scopes, lastAt, ahead, sums).Exec(exactly(len(changed), "counting in scopes"))
	}
	if len(unused) > 0 {
		tenants, scopes := scopeColumns(unused)
		b.Queue(deleteScopesSQL, tenants, scopes).Exec(exactly(len(unused), "removing unused scopes"))
	}
	if n := len(l.entries); n > 0 {
		keys, recordedAt, amounts, reservedAt := make([]scopeKey, n), make([]time.Time, n), make([]int64, n), make([]*time.Time, n)
		for i, e := range l.entries {
			keys[i], recordedAt[i], amounts[i], reservedAt[i] = e.scope.key, moment(e.at), e.amount, e.reservedAt
		}
		tenants, scopes := scopeColumns(keys)
		b.Queue(insertEntriesSQL, tenants, scopes, recordedAt, amounts, reservedAt)
	}
}

// sums are those of the windows last asked about in which anything was counted, as Postgres writes arrays.
func (s *lockedScope) sums(now int64) string {
	s.rollups = slices.DeleteFunc(s.rollups, func(r *rollup) bool { return len(r.buckets) == 0 })
	out := []byte{'{'}
	for _, r := range s.rollups[:min(len(s.rollups), windowsMax)] {
		r.forget(now)
		for _, b := range r.buckets {
			for _, n := range [3]int64{r.seconds, b.index, b.amount} {
				if len(out) > 1 {
					out = append(out, ',')
				}
				out = strconv.AppendInt(out, n, 10)
			}
		}
	}
	return string(append(out, '}'))
}
