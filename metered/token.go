package metered

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/internal/telemetry"
	"github.com/holdfast/holdfast/internal/tokens"
)

// Token is a single-use token. Its plaintext is "hft_" and 48 characters: 256
// random bits and the CRC-32 (IEEE) of everything before it, in the URL
// alphabet of base 64. Scanners recognise a leaked token by the prefix, and the
// checksum detects a typing error without the database.
//
// Only Plaintext returns the plaintext. If a token, or a struct that contains
// one, is formatted, logged, marshalled or read by reflection, at most the
// prefix appears. Tokens cannot be compared or used as keys of a map. The zero
// value is not a token.
type Token struct {
	reveal func() string // nil for no token; a function, of which reflection, and so fmt, sees only the address
}

const redactedText = tokens.Prefix + "…"

// ParseToken makes a token of any text; no token if it is empty.
func ParseToken(text string) Token {
	if text == "" {
		return Token{}
	}
	return Token{reveal: func() string { return text }}
}

// Plaintext is the text of the token, "" for none. It is for the holder of the
// token only.
func (t Token) Plaintext() string {
	if t.reveal == nil {
		return ""
	}
	return t.reveal()
}

// Format writes the prefix, for every verb.
func (Token) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, redactedText) }

// MarshalText returns the prefix.
func (Token) MarshalText() ([]byte, error) { return []byte(redactedText), nil }

// TokenStore mints tokens and redeems them, each at most once. It is safe for
// concurrent use, in any number of processes.
type TokenStore struct {
	db *pgxpool.Pool
}

// Grant is what a token grants.
type Grant struct {
	// Purpose is the kind of token. Subject is the session or customer it is
	// for. Both have 1–255 characters, and both must be given again to redeem
	// the token.
	Purpose, Subject string
	// Payload is returned when the token is redeemed, byte for byte: JSON of at
	// most 8 KiB, with the rules of a job's arguments; null if empty.
	Payload json.RawMessage
	// TTL is how long the token can be redeemed, 1 s to 366 days.
	TTL time.Duration
}

// Bounds of a grant, and of how many tokens one call mints.
const (
	grantPayloadMax = 8 << 10
	ttlMax          = 366 * 24 * time.Hour
	mintMax         = 10_000
)

// Minted is a new token.
type Minted struct {
	// Token is the plaintext, which is returned only here.
	Token     Token
	ExpiresAt time.Time
}

// Mint makes a token for each grant, at most 10,000, in their order; all or
// none. They can be redeemed from now on until they expire, on the database's
// clock. Refusal: [ErrInvalid].
func (s *TokenStore) Mint(ctx context.Context, tenantID uuid.UUID, grants ...Grant) ([]Minted, error) {
	return inTx(ctx, s.db, func(tx pgx.Tx) ([]Minted, error) { return s.MintTx(ctx, tx, tenantID, grants...) })
}

// MintTx is [TokenStore.Mint] in the caller's transaction: the tokens exist
// once that has committed. It reads nothing, so it is correct at every
// isolation level.
func (s *TokenStore) MintTx(ctx context.Context, tx pgx.Tx, tenantID uuid.UUID, grants ...Grant) (_ []Minted, err error) {
	ctx, done := telemetry.Verb(ctx, "metered.mint")
	defer func() { done(outcomeOf(err)) }()
	if err := validateTenant(tenantID); err != nil {
		return nil, err
	}
	if len(grants) > mintMax {
		return nil, invalidField("grants", "must be at most %d", mintMax)
	}
	minted, stored := make([]Minted, len(grants)), make([]tokens.Grant, len(grants))
	for i, g := range grants {
		if err := g.validate(); err != nil {
			return nil, err
		}
		stored[i] = tokens.Grant{Text: tokens.NewText(), Purpose: g.Purpose, Subject: g.Subject, Payload: g.Payload, TTL: g.TTL}
		minted[i].Token = ParseToken(stored[i].Text)
	}
	expiry, err := tokens.MintTx(ctx, tx, tenantID, stored)
	if err != nil {
		return nil, err
	}
	for i := range minted {
		minted[i].ExpiresAt = expiry[i]
	}
	return minted, nil
}

func (g *Grant) validate() error {
	if err := validateText("purpose", g.Purpose, textMax); err != nil {
		return err
	}
	if err := validateText("subject", g.Subject, textMax); err != nil {
		return err
	}
	if g.TTL < time.Second || g.TTL > ttlMax {
		return invalidField("ttl", "must be between 1s and %s", ttlMax)
	}
	if len(g.Payload) == 0 {
		return nil
	}
	return validateJSON("payload", g.Payload, grantPayloadMax)
}

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
// one redeems it; the others wait for its transaction to end and then find it
// used.
//
// Refusals: [ErrTokenRefused], after which the token is unchanged, and
// [ErrInvalid].
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
