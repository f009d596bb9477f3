package tokens

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/pg"
)

// Redemptions redeems the tokens that a group presents, in the caller's
// transaction, each at most once. It is for groups of which nearly all tokens
// are valid and needed.
//
// It takes first and gives back afterwards. Queue adds to the caller's batch a
// statement that redeems each valid token. Redeem then decides the members one
// after another, and QueueSettle gives back the tokens of members that did not
// redeem theirs. A token that several members present goes to the first that
// redeems it.
//
// Tokens are locked in their order until the transaction ends. That order is
// the one in which the statement finds the rows by index. A plan that joins in
// another way can deadlock two groups with the same tokens; such a deadlock may
// be retried. Rolled back, nothing was redeemed.
//
// It is correct at every isolation level. Above READ COMMITTED a lost race is a
// serialization failure (SQLSTATE 40001) of the statement that Queue added, and
// a token that was minted after the transaction's first statement is unknown.
type Redemptions struct {
	asked  []*presentedToken // in the order of their keys
	of     []*presentedToken // of each member; nil without a well-formed token
	shared bool              // some token is
	known  Locked
	at     time.Time // the database's clock at the lookup
}

// presentedToken is a token as one member presents it. A token that several
// members present is not taken beforehand, because the member that redeems it
// is not known yet.
type presentedToken struct {
	*Presented
	shared   bool
	taken    bool // redeemed by queueTake
	redeemed bool // by its member
}

// NewRedemptions makes one for a group, in the group's order.
func NewRedemptions(group []Presented) *Redemptions {
	s := &Redemptions{of: make([]*presentedToken, len(group)), asked: make([]*presentedToken, 0, len(group))}
	all := make([]presentedToken, len(group))
	for i := range group {
		if group[i].wellFormed {
			all[i].Presented = &group[i]
			s.of[i] = &all[i]
			s.asked = append(s.asked, s.of[i])
		}
	}
	slices.SortStableFunc(s.asked, func(a, b *presentedToken) int { return compareKeys(a.key, b.key) })
	for i := 1; i < len(s.asked); i++ {
		if s.asked[i].key == s.asked[i-1].key {
			s.asked[i-1].shared, s.asked[i].shared, s.shared = true, true, true
		}
	}
	return s
}

// takeSQL redeems each valid token. It reads the clock again where it had
// to wait for a row.
const takeSQL = `
UPDATE expiring_tokens t
SET consumed_at = least(clock_timestamp(), t.expires_at - interval '1 microsecond')
FROM unnest($1::uuid[], $2::bytea[], $3::text[], $4::text[], $5::text[]) WITH ORDINALITY
     AS a (tenant_id, token_hash, purpose, or_purpose, subject, place)
WHERE t.tenant_id = coalesce(a.tenant_id, ($1::uuid[])[1]) AND t.token_hash = a.token_hash
    AND t.purpose IN (coalesce(a.purpose, ($3::text[])[1]), coalesce(a.or_purpose, ($4::text[])[1])) AND t.subject = a.subject
    AND t.consumed_at IS NULL AND t.expires_at > clock_timestamp()
RETURNING a.place`

// Queue adds to b a statement that redeems every valid token. It comes before
// Redeem, in the same transaction. If members share tokens, it locks all tokens
// first, so that no group waits for a token while it holds locks that come
// later in the order.
func (s *Redemptions) Queue(b *pgx.Batch) {
	if s.shared {
		s.known.queue(b, lockSQL, s.keys())
	}
	sent := slices.DeleteFunc(slices.Clone(s.asked), func(t *presentedToken) bool { return t.shared })
	n := len(sent)
	if n == 0 {
		return
	}
	tenants, hashes, text := make([][16]byte, n), make([][]byte, n), make([]string, 3*n)
	for i, t := range sent {
		tenants[i], hashes[i] = t.key.tenant, t.key.hash[:]
		text[i], text[n+i], text[2*n+i] = t.Purpose, t.OrPurpose, t.Subject
	}
	b.Queue(takeSQL, pg.Collapse(tenants), hashes, pg.Collapse(text[:n]), pg.Collapse(text[n:2*n]), text[2*n:]).Query(func(rows pgx.Rows) error {
		var place int64
		_, err := pgx.ForEachRow(rows, []any{&place}, func() error {
			sent[place-1].taken = true
			return nil
		})
		return err
	})
}

// keys are those of all tokens, sorted.
func (s *Redemptions) keys() []key {
	keys := make([]key, len(s.asked))
	for i, t := range s.asked {
		keys[i] = t.key
	}
	return keys
}

// LookUpTx reads the tokens that members need, as need reports by a member's
// index, and that Queue did not take, and the clock after that: one round trip,
// or none if there are no such tokens. It locks nothing, because what makes a
// token invalid does not change. It comes between Queue and Redeem.
func (s *Redemptions) LookUpTx(ctx context.Context, tx pgx.Tx, need func(i int) bool) error {
	var unknown []key
	needed := false
	for i, t := range s.of {
		if t == nil || t.taken || !need(i) {
			continue
		}
		needed = true
		if !t.shared {
			unknown = append(unknown, t.key)
		}
	}
	if !needed {
		return nil
	}
	b := &pgx.Batch{}
	slices.SortFunc(unknown, compareKeys)
	s.known.queue(b, readSQL, unknown)
	pg.QueueClock(b, &s.at)
	if err := tx.SendBatch(ctx, b).Close(); err != nil {
		return fmt.Errorf("look up the tokens of a group of %d: %w", len(s.of), err)
	}
	return nil
}

// Redeem returns why member i cannot redeem its token, a [RefusedError], or nil. If
// it can and commit is set, the token is redeemed. The calls are in the order
// of the members, and LookUpTx has reported all of these members as needed.
func (s *Redemptions) Redeem(i int, commit bool) error {
	t := s.of[i]
	if t == nil {
		return ErrMalformed
	}
	if !t.taken {
		refusal := s.known.Refusal(t.Presented, s.at)
		if refusal == "" && !t.shared {
			refusal = ErrUnknown // minted after Queue's statement read the table
		}
		if refusal != "" {
			return refusal
		}
	}
	if !commit {
		return nil
	}
	t.redeemed = true
	if !t.taken {
		s.known.Redeem(t.Presented)
	}
	return nil
}

const returnSQL = `
UPDATE expiring_tokens t
SET consumed_at = NULL
FROM unnest($1::uuid[], $2::bytea[]) AS a (tenant_id, token_hash)
WHERE t.tenant_id = a.tenant_id AND t.token_hash = a.token_hash`

// QueueSettle adds to b what gives back the tokens that were taken and not
// redeemed, and redeems those that were redeemed and not taken.
func (s *Redemptions) QueueSettle(b *pgx.Batch) {
	var back []key
	for _, t := range s.asked {
		if t.taken && !t.redeemed {
			back = append(back, t.key)
		}
	}
	if len(back) > 0 {
		tenants, hashes := columnsOf(back)
		b.Queue(returnSQL, tenants, hashes).Exec(pg.Reached(len(back), "returning tokens"))
	}
	s.known.QueueWrite(b, s.at)
}

// A row's xmax is the last transaction that locked it. The row is free if it
// can be locked now. FOR SHARE, so that two such queries do not see each
// other's locks.
const (
	lockOwnersSQL = `
SELECT t.tenant_id, t.token_hash, t.xmax::text
FROM unnest($1::uuid[], $2::bytea[]) AS a (tenant_id, token_hash)
JOIN expiring_tokens t USING (tenant_id, token_hash)`

	unLockedSQL = `
SELECT t.tenant_id, t.token_hash, ''
FROM unnest($1::uuid[], $2::bytea[]) AS a (tenant_id, token_hash)
JOIN expiring_tokens t USING (tenant_id, token_hash)
FOR SHARE OF t SKIP LOCKED`
)

// QueueLockOwners adds to b what reports, for each member's token, the
// transaction that has locked its row, or "" if none does. The last report for
// a member counts.
func (s *Redemptions) QueueLockOwners(b *pgx.Batch, report func(i int, owner string)) {
	if len(s.asked) == 0 {
		return
	}
	members := make(map[key][]int, len(s.asked))
	for i, t := range s.of {
		if t != nil {
			members[t.key] = append(members[t.key], i)
		}
	}
	read := func(rows pgx.Rows) error {
		var tenant [16]byte
		var hash []byte
		var owner string
		_, err := pgx.ForEachRow(rows, []any{&tenant, &hash, &owner}, func() error {
			for _, i := range members[key{tenant, [32]byte(hash)}] {
				report(i, owner)
			}
			return nil
		})
		return err
	}
	tenants, hashes := columnsOf(s.keys())
	b.Queue(lockOwnersSQL, tenants, hashes).Query(read)
	b.Queue(unLockedSQL, tenants, hashes).Query(read)
}
