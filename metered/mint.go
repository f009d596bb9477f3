package metered

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/internal/telemetry"
)

// TokenStore mints tokens and spends them, each once at most. It is safe for concurrent use, in any number of processes.
type TokenStore struct {
	db *pgxpool.Pool
}

// NewTokenStore makes a store. The pool is for the verbs without Tx.
func NewTokenStore(db *pgxpool.Pool) *TokenStore { return &TokenStore{db} }

// Grant is what a token is good for.
type Grant struct {
	// Purpose is the kind of token, Subject for whom it is (a session, a customer): 1–255 characters each. Both must be
	// named again where it is spent.
	Purpose, Subject string
	// Payload is given back when the token is spent, byte for byte: JSON of at most GrantPayloadMax bytes, of which the
	// same is asked as of a job's; null if empty.
	Payload json.RawMessage
	// TTL is how long the token can be spent, 1 s to TTLMax.
	TTL time.Duration
}

// Bounds of a grant, and of how many tokens one call mints.
const (
	GrantPayloadMax = 8 << 10
	TTLMax          = 366 * 24 * time.Hour
	MintMax         = 10_000
)

// Minted is a new token.
type Minted struct {
	// Token is the plaintext, which cannot be had again.
	Token     Token
	ExpiresAt time.Time
}

// Mint makes a token. It can be spent from now on and until it expires, on the database's clock. The error for bad input
// is an [*InvalidError].
func (s *TokenStore) Mint(ctx context.Context, tenantID uuid.UUID, grant Grant) (Minted, error) {
	minted, err := s.MintMany(ctx, tenantID, []Grant{grant})
	if err != nil {
		return Minted{}, err
	}
	return minted[0], nil
}

// MintTx is [TokenStore.Mint] in the caller's transaction: the token exists once that has committed.
func (s *TokenStore) MintTx(ctx context.Context, tx pgx.Tx, tenantID uuid.UUID, grant Grant) (Minted, error) {
	minted, err := s.MintManyTx(ctx, tx, tenantID, []Grant{grant})
	if err != nil {
		return Minted{}, err
	}
	return minted[0], nil
}

// MintMany makes a token for each grant, at most MintMax, in their order; all or none.
func (s *TokenStore) MintMany(ctx context.Context, tenantID uuid.UUID, grants []Grant) (minted []Minted, err error) {
	err = inTx(ctx, s.db, func(tx pgx.Tx) error {
		minted, err = s.MintManyTx(ctx, tx, tenantID, grants)
		return err
	})
	if err != nil {
		return nil, err
	}
	return minted, nil
}

const mintSQL = `
INSERT INTO expiring_tokens (tenant_id, token_hash, purpose, subject, payload, created_at, expires_at)
SELECT $1, m.token_hash, m.purpose, m.subject, m.payload::json, now.at, now.at + m.ttl * interval '1 microsecond'
FROM unnest($2::bytea[], $3::text[], $4::text[], $5::text[], $6::bigint[])
     AS m (token_hash, purpose, subject, payload, ttl),
     (SELECT clock_timestamp() AS at) AS now
RETURNING token_hash, expires_at`

type mintedRow struct {
	TokenHash []byte
	ExpiresAt time.Time
}

// MintManyTx is [TokenStore.MintMany] in the caller's transaction. It reads nothing, so it is right at every isolation level.
func (s *TokenStore) MintManyTx(ctx context.Context, tx pgx.Tx, tenantID uuid.UUID, grants []Grant) (_ []Minted, err error) {
	ctx, done := telemetry.Verb(ctx, "metered.mint")
	defer func() { done(outcomeOf(err)) }()
	if err := validateTenant(tenantID); err != nil {
		return nil, err
	}
	n := len(grants)
	if n > MintMax {
		return nil, &InvalidError{Field: "grants", Message: fmt.Sprintf("must be at most %d", MintMax)}
	}
	minted, place := make([]Minted, n), make(map[string]int, n)
	hashes, texts, ttls := make([][]byte, n), make([]string, 3*n), make([]int64, n)
	for i, g := range grants {
		if err := g.validate(); err != nil {
			return nil, err
		}
		minted[i].Token = newToken()
		hash := minted[i].Token.hash()
		hashes[i], place[string(hash[:])] = hash[:], i
		texts[i], texts[n+i], texts[2*n+i], ttls[i] = g.Purpose, g.Subject, string(g.Payload), g.TTL.Microseconds()
		if len(g.Payload) == 0 {
			texts[2*n+i] = "null"
		}
	}
	rows, err := tx.Query(ctx, mintSQL, tenantID, hashes, texts[:n], texts[n:2*n], texts[2*n:], ttls)
	if err != nil {
		return nil, fmt.Errorf("mint %d tokens: %w", n, err)
	}
	kept, err := pgx.CollectRows(rows, pgx.RowToStructByPos[mintedRow])
	if err != nil {
		return nil, fmt.Errorf("mint %d tokens: %w", n, err)
	}
	for _, k := range kept {
		minted[place[string(k.TokenHash)]].ExpiresAt = k.ExpiresAt
	}
	return minted, nil
}

func (g *Grant) validate() error {
	if err := validateText("purpose", g.Purpose, TextMax); err != nil {
		return err
	}
	if err := validateText("subject", g.Subject, TextMax); err != nil {
		return err
	}
	if g.TTL < time.Second || g.TTL > TTLMax {
		return &InvalidError{Field: "ttl", Message: "must be between 1s and " + TTLMax.String()}
	}
	if len(g.Payload) == 0 {
		return nil
	}
	return validateJSON("payload", g.Payload, GrantPayloadMax)
}
