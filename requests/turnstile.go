package requests

import (
	"context"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/internal/pgerr"
	"github.com/holdfast/holdfast/inventory"
	"github.com/holdfast/holdfast/metered"
)

// variantRef names a variant.
type variantRef struct {
	TenantID  uuid.UUID
	VariantID string
}

// guardedSQL says which variants require an admission token. All of them come back, because a condition on the stocks would
// let a plan begin with every variant that requires one.
const guardedSQL = `
SELECT a.tenant_id, a.variant_id, s.admission IS NOT DISTINCT FROM 'token'
FROM unnest($1::uuid[], $2::text[]) AS a (tenant_id, variant_id)
LEFT JOIN inventory_stocks s ON s.tenant_id = a.tenant_id AND s.variant_id = a.variant_id`

// queueGuarded adds to b what finds the group's variants that require an admission token.
func queueGuarded(b *pgx.Batch, group []Submission) map[variantRef]bool {
	guarded := make(map[variantRef]bool, 1)
	var tenants [][16]byte
	var variants []string
	for i := range group {
		v := variantRef{group[i].TenantID, group[i].VariantID}
		if _, asked := guarded[v]; !asked {
			guarded[v] = false
			tenants, variants = append(tenants, v.TenantID), append(variants, v.VariantID)
		}
	}
	b.Queue(guardedSQL, tenants, variants).Query(func(rows pgx.Rows) error {
		var tenant [16]byte
		var variant string
		var token bool
		_, err := pgx.ForEachRow(rows, []any{&tenant, &variant, &token}, func() error {
			guarded[variantRef{tenant, variant}] = token
			return nil
		})
		return err
	})
	return guarded
}

// coveredSQL finds the requests for a quantity that the cart holds already. What is held is told from the cart's holds, not by
// a condition on them: an index would then list all that is held of the variant.
const coveredSQL = `
SELECT a.tenant_id, a.request_id
FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::text[], $5::integer[]) AS a (tenant_id, request_id, cart_id, variant_id, quantity)
WHERE a.quantity <= (
    SELECT sum(r.quantity) FILTER (WHERE r.status = 'held' AND r.expires_at > clock_timestamp())
    FROM reservations r
    WHERE r.tenant_id = a.tenant_id AND r.holder_id = a.cart_id AND r.resource_key = a.variant_id
        AND r.resource_kind = '` + inventory.Kind + `'
)`

// queueCovered adds to b what finds those of the group who ask for no more than their cart holds: they need no token.
func queueCovered(b *pgx.Batch, group []Submission) map[Ref]bool {
	covered := make(map[Ref]bool)
	var tenants, ids [][16]byte
	var carts, variants []string
	var quantities []int32
	for i := range group {
		if s := &group[i]; s.Kind == Set {
			tenants, ids, quantities = append(tenants, s.TenantID), append(ids, s.RequestID), append(quantities, s.Quantity)
			carts, variants = append(carts, s.CartID), append(variants, s.VariantID)
		}
	}
	if len(ids) > 0 {
		b.Queue(coveredSQL, tenants, ids, carts, variants, quantities).Query(func(rows pgx.Rows) error {
			var tenant, id [16]byte
			_, err := pgx.ForEachRow(rows, []any{&tenant, &id}, func() error {
				covered[Ref{tenant, id}] = true
				return nil
			})
			return err
		})
	}
	return covered
}

// admitMetered admits those of the group who pass the turnstile, in one transaction: the rows are inserted, the tokens spent
// and the rates counted in one round trip. What is refused or was admitted before is given back in a few more.
func (in *Intake) admitMetered(ctx context.Context, conn *pgxpool.Conn, group []*member, submissions []Submission) (admitted map[Ref]admission, err error) {
	visits := make([]metered.Visit, len(group))
	for i, m := range group {
		visits[i] = m.visit
	}
	turnstile, err := metered.NewTurnstile(visits)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	var wakes []Wake
	e := newEntry(submissions)
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		b := &pgx.Batch{}
		e.queue(b)
		guarded, covered := queueGuarded(b, submissions), queueCovered(b, submissions)
		turnstile.Queue(b)
		err := tx.SendBatch(ctx, b).Close()
		if pgerr.IsLockTimeout(err) && e.inserted != nil {
			return &blockedError{err, turnstile}
		}
		if err != nil {
			return err
		}
		refused, err := e.pass(ctx, tx, turnstile, group, func(s *Submission) bool {
			return guarded[variantRef{s.TenantID, s.VariantID}] && !covered[Ref{s.TenantID, s.RequestID}]
		})
		if err != nil {
			return err
		}
		admitted, wakes, err = e.outcome(ctx, tx, refused)
		return err
	})
	if err == nil {
		in.noteRefused(group, admitted, began)
		in.announce(wakes, slices.DeleteFunc(submissions, func(s Submission) bool {
			return admitted[Ref{s.TenantID, s.RequestID}].err != nil
		}))
	}
	return admitted, err
}

const unadmitSQL = `
DELETE FROM reservation_requests r
USING unnest($1::uuid[], $2::uuid[]) AS refused (tenant_id, request_id)
WHERE r.tenant_id = refused.tenant_id AND r.request_id = refused.request_id`

// pass has those at the turnstile whose rows were inserted, takes back the rows of who is refused, and says why.
func (e *entry) pass(ctx context.Context, tx pgx.Tx, turnstile *metered.Turnstile, group []*member, needsToken func(*Submission) bool) (map[Ref]error, error) {
	inserted := make(map[Ref]bool, len(e.inserted))
	for i := range e.inserted {
		inserted[e.inserted[i].Ref()] = true
	}
	refused := make(map[Ref]error)
	entries, err := turnstile.PassTx(ctx, tx, func(i int) metered.Treatment {
		s := &group[i].submission
		ref := Ref{s.TenantID, s.RequestID}
		if !inserted[ref] {
			return metered.Ignored
		}
		delete(inserted, ref) // another member of the same name is the same request
		switch {
		case !needsToken(s):
			return metered.Counted
		case !group[i].shows:
			refused[ref] = ErrTokenRequired
			return metered.Ignored
		default:
			return metered.Guarded
		}
	})
	if err != nil {
		return nil, err
	}
	var tenants, ids [][16]byte
	for i, entry := range entries {
		ref := Ref{group[i].submission.TenantID, group[i].submission.RequestID}
		group[i].standings = entry.Standings
		if entry.Err != nil {
			refused[ref] = entry.Err
		}
		if refused[ref] != nil {
			tenants, ids = append(tenants, ref.TenantID), append(ids, ref.RequestID)
		}
	}
	if len(ids) == 0 {
		return nil, nil
	}
	holdKeys(group, refused)
	_, err = tx.Exec(ctx, unadmitSQL, tenants, ids)
	e.inserted = slices.DeleteFunc(e.inserted, func(r Request) bool { return refused[r.Ref()] != nil })
	return refused, err
}

// holdKeys refuses those of the group who stood back for one under the same key that was refused itself: they were not
// decided, and may come again.
func holdKeys(group []*member, refused map[Ref]error) {
	held := make(map[Key]bool)
	for _, m := range group {
		if s := &m.submission; refused[Ref{s.TenantID, s.RequestID}] != nil && s.IdempotencyKey != "" {
			held[s.key()] = true
		}
	}
	for _, m := range group {
		s := &m.submission
		if ref := (Ref{s.TenantID, s.RequestID}); refused[ref] == nil && held[s.key()] {
			refused[ref] = &RefusedError{Why: WhyKey, RetryAfter: retrySoonest}
		}
	}
}

// noteRefused counts who was refused at the turnstile, and notes the rates that had not enough left when they were seen.
func (in *Intake) noteRefused(group []*member, admitted map[Ref]admission, seen time.Time) {
	for _, m := range group {
		s := &m.submission
		if err := admitted[Ref{s.TenantID, s.RequestID}].err; err != nil {
			count(m.ctx, err)
			in.notes.spend(s.TenantID, m.rates, m.standings, seen)
		}
	}
}

// blockedError says that a group's rows were inserted, and then a rate or a token was locked by somebody else for too long.
type blockedError struct {
	cause     error
	turnstile *metered.Turnstile
}

func (e *blockedError) Error() string { return "a rate or a token is locked: " + e.cause.Error() }

func (e *blockedError) Unwrap() error { return e.cause }

// leaveOut refuses those of a blocked group who need a row that one transaction does not give back, and returns the others,
// who are to be admitted without them. Such a transaction is in all likelihood that of a process that has stopped or lost
// its machine, and its locks last for longer than callers wait. The rates are noted, so that no further group waits for them.
//
// A group that is blocked again, by rows that go from one to the other and are too many to wait for, is admitted tenant by
// tenant; and where it is one tenant's, that is refused, as any other who has too much under way.
func (in *Intake) leaveOut(ctx context.Context, group []*member, blocked *blockedError) (parts [][]*member) {
	again := group[0].again
	var found metered.Blocked
	if !again || len(group) == 1 {
		look, cancel := context.WithTimeout(ctx, min(blockedTimeout, in.config.CommitTimeout))
		defer cancel()
		found, _ = blocked.turnstile.Blocked(look, in.db) // what it found by the time it failed
		in.notes.hold(found.Rates)
	}
	var out, rest []*member
	for i, m := range group {
		if m.again = true; slices.Contains(found.Places, i) {
			out = append(out, m)
		} else {
			rest = append(rest, m)
		}
	}
	switch tenants := byTenant(rest); {
	case again && len(tenants) == 1:
		out = group
	case again:
		parts = tenants
	case len(rest) > 0:
		parts = [][]*member{rest}
	}
	in.turnAway(ctx, out)
	return parts
}

// byTenant are the members of each tenant, in their order.
func byTenant(group []*member) (tenants [][]*member) {
	places := make(map[uuid.UUID]int)
	for _, m := range group {
		place, known := places[m.submission.TenantID]
		if !known {
			place = len(tenants)
			places[m.submission.TenantID] = place
			tenants = append(tenants, nil)
		}
		tenants[place] = append(tenants[place], m)
	}
	return tenants
}

// blockedTimeout bounds the look who is blocked.
const blockedTimeout = time.Second

// turnAway answers members who can't be let in now: one whose key was used before as ever, the others that they may come again.
func (in *Intake) turnAway(ctx context.Context, group []*member) {
	keyed := slices.DeleteFunc(slices.Clone(group), func(m *member) bool { return m.submission.IdempotencyKey == "" })
	var known map[Ref]admission
	if len(keyed) > 0 {
		known = in.known(ctx, keyed)
	}
	for _, m := range group {
		a, ok := known[Ref{m.submission.TenantID, m.submission.RequestID}]
		if !ok {
			a = admission{err: &RefusedError{Why: WhyBusy, RetryAfter: retrySoonest}}
			count(m.ctx, a.err)
		}
		in.answer(m, a.view, a.err)
	}
}
