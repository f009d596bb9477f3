package metered

import (
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/unnest"
)

// spending are the tokens that a group presents at a turnstile.
type spending struct {
	asked  []*token // in the order of their keys
	of     []*token // of each visit, nil if it presents none
	shared bool     // some token is
	looked lockedTokens
}

// token is one that is presented. One that several visits present is not taken beforehand: nobody would know for whom.
type token struct {
	key    tokenKey
	by     *presented
	shared bool
	taken  bool // spent by queueTake
	spent  bool // by a visit that was let in
}

func newSpending(visits []Visit) spending {
	s := spending{of: make([]*token, len(visits)), asked: make([]*token, 0, len(visits))}
	all := make([]token, len(visits))
	for i := range visits {
		if v := &visits[i]; v.spend != nil && v.spend.wellFormed {
			all[i] = token{key: tokenKey{v.tenant, v.spend.hash}, by: v.spend}
			s.of[i] = &all[i]
			s.asked = append(s.asked, s.of[i])
		}
	}
	slices.SortStableFunc(s.asked, func(a, b *token) int { return compareTokens(a.key, b.key) })
	for i := 1; i < len(s.asked); i++ {
		if s.asked[i].key == s.asked[i-1].key {
			s.asked[i-1].shared, s.asked[i].shared, s.shared = true, true, true
		}
	}
	return s
}

// takeTokensSQL spends each token that is good. It looks at the clock again where it had to wait for a row.
const takeTokensSQL = `
UPDATE expiring_tokens t
SET consumed_at = least(clock_timestamp(), t.expires_at - interval '1 microsecond')
FROM unnest($1::uuid[], $2::bytea[], $3::text[], $4::text[], $5::text[]) WITH ORDINALITY
     AS a (tenant_id, token_hash, purpose, or_purpose, subject, place)
WHERE t.tenant_id = coalesce(a.tenant_id, ($1::uuid[])[1]) AND t.token_hash = a.token_hash
    AND t.purpose IN (coalesce(a.purpose, ($3::text[])[1]), coalesce(a.or_purpose, ($4::text[])[1])) AND t.subject = a.subject
    AND t.consumed_at IS NULL AND t.expires_at > clock_timestamp()
RETURNING a.place`

// queueTake adds to the batch what spends every token that is good. Where some are shared it locks all of them first, so
// that nobody waits for a token after a rate.
func (s *spending) queueTake(b *pgx.Batch) {
	if s.shared {
		keys := make([]tokenKey, len(s.asked))
		for i, t := range s.asked {
			keys[i] = t.key
		}
		s.looked.queue(b, lockTokensSQL, keys)
	}
	sent := slices.DeleteFunc(slices.Clone(s.asked), func(t *token) bool { return t.shared })
	n := len(sent)
	if n == 0 {
		return
	}
	tenants, hashes, text := make([][16]byte, n), make([][]byte, n), make([]string, 3*n)
	for i, t := range sent {
		tenants[i], hashes[i] = t.key.tenant, t.key.hash[:]
		text[i], text[n+i], text[2*n+i] = t.by.Purpose, t.by.OrPurpose, t.by.Subject
	}
	b.Queue(takeTokensSQL, unnest.Once(tenants), hashes, unnest.Once(text[:n]), unnest.Once(text[n:2*n]), text[2*n:]).Query(func(rows pgx.Rows) error {
		var place int64
		_, err := pgx.ForEachRow(rows, []any{&place}, func() error {
			sent[place-1].taken = true
			return nil
		})
		return err
	})
}

// queueLook adds to the batch what finds the tokens that are needed, were not taken and are not known yet, and what reads
// the clock after. They are not locked: what is wrong with them stays so.
func (s *spending) queueLook(b *pgx.Batch, treatments []Treatment, at *time.Time) {
	var unknown []tokenKey
	needed := false
	for i, t := range s.of {
		if t == nil || t.taken || treatments[i] != Guarded {
			continue
		}
		needed = true
		if !t.shared {
			unknown = append(unknown, t.key)
		}
	}
	if needed {
		slices.SortFunc(unknown, compareTokens)
		s.looked.queue(b, lookTokensSQL, unknown)
		b.Queue(clockSQL).QueryRow(func(row pgx.Row) error { return row.Scan(at) })
	}
}

// judge says why the ith visit's token can't be spent, nil if it can.
func (s *spending) judge(i int, at time.Time) error {
	switch t := s.of[i]; {
	case t == nil:
		return ErrTokenMalformed
	case t.taken:
		return nil
	default:
		refused := s.looked.found[t.key].refusal(&t.by.Redemption, at)
		if refused == nil && !t.shared {
			return ErrTokenUnknown // it was minted only after it was asked for
		}
		return refused
	}
}

// spend notes that the ith visit's token is spent.
func (s *spending) spend(i int) {
	t := s.of[i]
	t.spent = true
	if !t.taken {
		s.looked.spend(s.looked.found[t.key])
	}
}

const returnTokensSQL = `
UPDATE expiring_tokens t
SET consumed_at = NULL
FROM unnest($1::uuid[], $2::bytea[]) AS a (tenant_id, token_hash)
WHERE t.tenant_id = a.tenant_id AND t.token_hash = a.token_hash`

// queueSettle adds to the batch what gives back the tokens that were taken and not needed, and spends those that were not
// taken and are.
func (s *spending) queueSettle(b *pgx.Batch, at time.Time) {
	var back []tokenKey
	for _, t := range s.asked {
		if t.taken && !t.spent {
			back = append(back, t.key)
		}
	}
	if len(back) > 0 {
		tenants, hashes := columnsOf(back)
		b.Queue(returnTokensSQL, tenants, hashes).Exec(exactly(len(back), "giving tokens back"))
	}
	s.looked.queueWrite(b, at)
}
