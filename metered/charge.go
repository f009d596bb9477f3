package metered

import (
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/pg"
)

// charge decides the charges of one command, in their order. All are reserved,
// or none if one does not fit or allowed is false. It returns the states of the
// budgets after that, and an error for the first charge that does not fit.
func (l *lockedScopes) charge(charges []Charge, allowed bool, now int64) ([]Budget, error) {
	budgets, fit := make([]Budget, len(charges)), len(charges)
	for i, c := range charges {
		s := l.found[c.Scope]
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
		budgets[i] = Budget{Reservation: Reservation{c.Scope, moment(e.at), c.Amount}}
	}
	reserved := fit == len(charges) && allowed
	if !reserved {
		l.undo()
		clear(budgets)
	}
	for i, c := range charges {
		s, b := l.found[c.Scope], &budgets[i]
		r, clock := s.rollup(int64(c.Window/time.Second)), s.clock(now)
		b.Remaining = max(c.Limit-r.sum(clock), 0)
		b.Reset = time.Duration(r.reset(clock)) * time.Microsecond
		if !reserved {
			b.Wait = time.Duration(r.wait(clock, c.Amount, c.Limit)) * time.Microsecond
		}
	}
	if fit < len(charges) {
		return budgets, &Error{Kind: ErrOverBudget, Charge: charges[fit], Remaining: budgets[fit].Remaining, Wait: budgets[fit].Wait}
	}
	return budgets, nil
}

// undo removes all entries, the last first.
func (l *lockedScopes) undo() {
	for _, e := range slices.Backward(l.entries) {
		e.scope.add(e.at, -e.amount)
		e.scope.lastAt = e.before
		e.scope.pending--
	}
	l.entries = nil
}

const updateScopesSQL = `
UPDATE budget_scopes s
SET last_at = u.last_at, ahead = u.ahead, sums = u.sums::bigint[]
FROM unnest($2::text[], $3::timestamptz[], $4::bigint[], $5::text[]) AS u (scope, last_at, ahead, sums)
WHERE s.tenant_id = $1 AND s.scope = u.scope`

const deleteScopesSQL = `
DELETE FROM budget_scopes
WHERE tenant_id = $1 AND scope = ANY ($2::text[])`

const insertEntriesSQL = `
INSERT INTO budget_ledger (tenant_id, scope, recorded_at, amount, reserved_at)
SELECT $1, e.scope, e.recorded_at, e.amount, e.reserved_at
FROM unnest($2::text[], $3::timestamptz[], $4::bigint[], $5::timestamptz[]) AS e (scope, recorded_at, amount, reserved_at)`

// queueWrite adds to b what writes the entries and the sums, and deletes scopes
// that were inserted and not charged.
func (l *lockedScopes) queueWrite(b *pgx.Batch, now int64) {
	var (
		changed, unused []string
		lastAt          []time.Time
		ahead           []int64
		sums            []string
	)
	for _, name := range l.names {
		switch s := l.found[name]; {
		case s.created && s.pending == 0:
			unused = append(unused, name)
		case s.prepared: // inserted as it is now
		case s.pending > 0 || s.rewrite:
			// The sums no longer contain what has left its window by now. Even
			// if the database's clock is set back behind this moment, the
			// scope's clock must not go back further than the sums reach.
			s.lastAt = max(s.lastAt, s.clock(now))
			changed, lastAt, ahead = append(changed, name), append(lastAt, moment(s.lastAt)), append(ahead, s.ahead)
			sums = append(sums, s.sums(s.clock(now)))
		}
	}
	if len(changed) > 0 {
		b.Queue(updateScopesSQL, l.tenant, changed, lastAt, ahead, sums).Exec(pg.Reached(len(changed), "metered: counting in scopes"))
	}
	if len(unused) > 0 {
		b.Queue(deleteScopesSQL, l.tenant, unused).Exec(pg.Reached(len(unused), "metered: removing unused scopes"))
	}
	if n := len(l.entries); n > 0 {
		scopes, recordedAt, amounts, reservedAt := make([]string, n), make([]time.Time, n), make([]int64, n), make([]*time.Time, n)
		for i, e := range l.entries {
			scopes[i], recordedAt[i], amounts[i], reservedAt[i] = e.scope.name, moment(e.at), e.amount, e.reservedAt
		}
		b.Queue(insertEntriesSQL, l.tenant, scopes, recordedAt, amounts, reservedAt)
	}
}

// sums are those of the windows used last in which anything was counted, in the
// text form of a Postgres array.
func (s *lockedScope) sums(now int64) string {
	s.rollups = slices.DeleteFunc(s.rollups, func(r *rollup) bool { return len(r.buckets) == 0 })
	out := []byte{'{'}
	for _, r := range s.rollups[:min(len(s.rollups), windowsMax)] {
		r.dropExpired(now)
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
