package metered

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// Redemption is a token presented to be spent.
type Redemption struct {
	// Purpose and Subject are the caller's own, never the presenter's: the token must have been minted for both.
	Purpose, Subject string
	// OrPurpose is another purpose that will do; "" for none.
	OrPurpose string
	Token     Token
}

// ConsumeTx spends the token in the caller's transaction and returns its payload; rolled back, the token is unspent. Any
// number of callers at once: one spends it, the others wait for its transaction to end and are then told ErrTokenUsed.
//
// Refusals: one of [ErrTokenRefused], after which the token is as it was, and an [*InvalidError].
//
// It is right at every isolation level. Above READ COMMITTED a lost race is a serialization failure (SQLSTATE 40001), and
// a token that was minted after the transaction's first statement is unknown to it.
func (s *TokenStore) ConsumeTx(ctx context.Context, tx pgx.Tx, tenantID uuid.UUID, r Redemption) (json.RawMessage, error) {
	verdicts, err := pass(ctx, tx, "metered.consume", 0, []Pass{{TenantID: tenantID, Spend: &r}})
	if err != nil {
		return nil, err
	}
	return verdicts[0].Payload, verdicts[0].Err
}

// ConsumeManyTx spends the tokens of a tenant, at most GroupMax, in the caller's transaction: two statements in all. The
// verdicts stand in the order of the redemptions. Each is by itself: one that is refused costs the others nothing. A
// token that is there twice is spent for the first, and used for the second.
func (s *TokenStore) ConsumeManyTx(ctx context.Context, tx pgx.Tx, tenantID uuid.UUID, redemptions []Redemption) ([]Verdict, error) {
	passes := make([]Pass, len(redemptions))
	for i := range redemptions {
		passes[i] = Pass{TenantID: tenantID, Spend: &redemptions[i]}
	}
	return pass(ctx, tx, "metered.consume", 0, passes)
}

// tokenKey is a token's primary key.
type tokenKey struct {
	tenant uuid.UUID
	hash   [sha256.Size]byte
}

// lockedToken is a token as it is under the lock.
type lockedToken struct {
	TenantID         [16]byte
	TokenHash        []byte
	Purpose, Subject string
	Payload          json.RawMessage
	ExpiresAt        time.Time
	Used             bool
	key              tokenKey
}

// lockedTokens are the tokens that a group presents.
type lockedTokens struct {
	found map[tokenKey]*lockedToken
	spent []tokenKey
}

const lookTokensSQL = `
SELECT t.tenant_id, t.token_hash, t.purpose, t.subject, t.payload, t.expires_at, t.consumed_at IS NOT NULL AS used
FROM unnest($1::uuid[], $2::bytea[]) AS asked (tenant_id, token_hash)
JOIN expiring_tokens t USING (tenant_id, token_hash)
ORDER BY t.tenant_id, t.token_hash`

const lockTokensSQL = lookTokensSQL + `
FOR NO KEY UPDATE OF t`

// queueLock adds to b what locks the tokens.
func (l *lockedTokens) queueLock(b *pgx.Batch, passes []Pass) {
	asked := make([]tokenKey, 0, len(passes))
	for _, p := range passes {
		if p.Spend != nil && p.Spend.Token.WellFormed() {
			asked = append(asked, tokenKey{p.TenantID, p.Spend.Token.hash()})
		}
	}
	slices.SortFunc(asked, compareTokens)
	l.queue(b, lockTokensSQL, asked)
}

// queue adds to b what finds the tokens; asked is sorted.
func (l *lockedTokens) queue(b *pgx.Batch, statement string, asked []tokenKey) {
	if l.found == nil {
		l.found = make(map[tokenKey]*lockedToken)
	}
	if len(asked) == 0 {
		return
	}
	tenants, hashes := columnsOf(slices.Compact(asked))
	b.Queue(statement, tenants, hashes).Query(func(rows pgx.Rows) error {
		var t lockedToken
		_, err := pgx.ForEachRow(rows, []any{&t.TenantID, &t.TokenHash, &t.Purpose, &t.Subject, &t.Payload, &t.ExpiresAt, &t.Used}, func() error {
			found := t
			found.Payload = bytes.Clone(t.Payload)
			found.key = tokenKey{t.TenantID, [sha256.Size]byte(t.TokenHash)}
			l.found[found.key] = &found
			return nil
		})
		return err
	})
}

func compareTokens(a, b tokenKey) int {
	return cmp.Or(bytes.Compare(a.tenant[:], b.tenant[:]), bytes.Compare(a.hash[:], b.hash[:]))
}

func columnsOf(keys []tokenKey) (tenants [][16]byte, hashes [][]byte) {
	tenants, hashes = make([][16]byte, len(keys)), make([][]byte, len(keys))
	for i := range keys {
		tenants[i], hashes[i] = keys[i].tenant, keys[i].hash[:]
	}
	return tenants, hashes
}

// judge says why the token can't be spent at the moment now, nil if it can.
func (l *lockedTokens) judge(tenantID uuid.UUID, r *Redemption, now time.Time) (*lockedToken, error) {
	if !r.Token.WellFormed() {
		return nil, ErrTokenMalformed
	}
	t := l.found[tokenKey{tenantID, r.Token.hash()}]
	refused := t.refusal(r, now)
	return t, refused
}

// refusal says why the token can't be spent at the moment now, nil if it can.
func (t *lockedToken) refusal(r *Redemption, now time.Time) error {
	switch {
	case t == nil:
		return ErrTokenUnknown
	case t.Purpose != r.Purpose && (t.Purpose != r.OrPurpose || r.OrPurpose == ""):
		return ErrTokenPurpose
	case t.Subject != r.Subject:
		return ErrTokenSubject
	case t.Used:
		return ErrTokenUsed
	case !now.Before(t.ExpiresAt):
		return ErrTokenExpired
	}
	return nil
}

// spend notes that the token is to be spent.
func (l *lockedTokens) spend(t *lockedToken) {
	t.Used = true
	l.spent = append(l.spent, t.key)
}

const spendTokensSQL = `
UPDATE expiring_tokens t
SET consumed_at = $3
FROM unnest($1::uuid[], $2::bytea[]) AS s (tenant_id, token_hash)
WHERE t.tenant_id = s.tenant_id AND t.token_hash = s.token_hash AND t.consumed_at IS NULL`

// queueWrite adds to b what spends the tokens.
func (l *lockedTokens) queueWrite(b *pgx.Batch, now time.Time) {
	if len(l.spent) == 0 {
		return
	}
	tenants, hashes := columnsOf(l.spent)
	b.Queue(spendTokensSQL, tenants, hashes, now).Exec(exactly(len(l.spent), "spending tokens"))
}
