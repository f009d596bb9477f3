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

	"github.com/holdfast/holdfast/internal/pg"
	"github.com/holdfast/holdfast/internal/telemetry"
)

// Redemption is a token that is presented to be redeemed.
type Redemption struct {
	// Purpose and Subject are the caller's own, never the presenter's: the
	// token must have been minted for both.
	Purpose, Subject string
	// OrPurpose is another accepted purpose; "" for none.
	OrPurpose string
	Token     Token
}

// ConsumeTx redeems the token in the caller's transaction and returns its
// payload. After a rollback the token is unspent. Of several concurrent callers
// one redeems it; the others wait for its transaction to end and then receive
// ErrTokenUsed.
//
// Refusals: one of [ErrTokenRefused], after which the token is unchanged, and
// an [*InvalidError].
//
// It is correct at every isolation level. Above READ COMMITTED a lost race is a
// serialization failure (SQLSTATE 40001), and a token that was minted after the
// transaction's first statement is unknown.
func (s *TokenStore) ConsumeTx(ctx context.Context, tx pgx.Tx, tenantID uuid.UUID, r Redemption) (payload json.RawMessage, err error) {
	ctx, done := telemetry.Verb(ctx, "metered.consume")
	defer func() { done(outcomeOf(err)) }()
	p := price{tenant: tenantID, spend: &r}
	if err := p.validate(0); err != nil {
		return nil, err
	}
	payload, _, err = p.payTx(ctx, tx)
	return payload, err
}

// tokenKey is a token's primary key.
type tokenKey struct {
	tenant uuid.UUID
	hash   [sha256.Size]byte
}

// lockedToken is the row of a token, read under the lock.
type lockedToken struct {
	TenantID         [16]byte
	TokenHash        []byte
	Purpose, Subject string
	Payload          json.RawMessage
	ExpiresAt        time.Time
	Used             bool
	key              tokenKey
}

// lockedTokens are the tokens that a command or a group presents.
type lockedTokens struct {
	found    map[tokenKey]*lockedToken
	redeemed []tokenKey
}

const readTokensSQL = `
SELECT t.tenant_id, t.token_hash, t.purpose, t.subject, t.payload, t.expires_at, t.consumed_at IS NOT NULL AS used
FROM unnest($1::uuid[], $2::bytea[]) AS asked (tenant_id, token_hash)
JOIN expiring_tokens t USING (tenant_id, token_hash)
ORDER BY t.tenant_id, t.token_hash`

const lockTokensSQL = readTokensSQL + `
FOR NO KEY UPDATE OF t`

// queue adds to b what reads the tokens; asked is sorted.
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

// refusal returns why the token can't be redeemed at the moment now, or nil.
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

// redeem records that the token is to be redeemed.
func (l *lockedTokens) redeem(t *lockedToken) {
	t.Used = true
	l.redeemed = append(l.redeemed, t.key)
}

const redeemTokensSQL = `
UPDATE expiring_tokens t
SET consumed_at = $3
FROM unnest($1::uuid[], $2::bytea[]) AS s (tenant_id, token_hash)
WHERE t.tenant_id = s.tenant_id AND t.token_hash = s.token_hash AND t.consumed_at IS NULL`

// queueWrite adds to b what redeems the tokens.
func (l *lockedTokens) queueWrite(b *pgx.Batch, now time.Time) {
	if len(l.redeemed) == 0 {
		return
	}
	tenants, hashes := columnsOf(l.redeemed)
	b.Queue(redeemTokensSQL, tenants, hashes, now).Exec(pg.Reached(len(l.redeemed), "metered: spending tokens"))
}
