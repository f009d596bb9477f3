package metered

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"io"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/internal/telemetry"
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

const (
	tokenPrefix  = "hft_"
	secretBytes  = 32
	tokenLength  = len(tokenPrefix) + 48
	redactedText = tokenPrefix + "…"
)

// newToken makes the plaintext of a token.
func newToken() Token {
	var raw [secretBytes + crc32.Size]byte
	rand.Read(raw[:secretBytes]) // never fails: the program ends instead
	binary.BigEndian.PutUint32(raw[secretBytes:], checksum(raw[:secretBytes]))
	return ParseToken(tokenPrefix + base64.RawURLEncoding.EncodeToString(raw[:]))
}

// ParseToken makes a token of any text; no token if it is empty.
// [Token.WellFormed] reports whether it can be one.
func ParseToken(text string) Token {
	if text == "" {
		return Token{}
	}
	return Token{reveal: func() string { return text }}
}

// Plaintext is the text of the token, "" for none. It is for the holder of the
// token only.
func (t Token) Plaintext() string {
	if t.IsZero() {
		return ""
	}
	return t.reveal()
}

// IsZero reports whether there is no token.
func (t Token) IsZero() bool { return t.reveal == nil }

// WellFormed reports whether the token has the form and the checksum of one,
// not whether it exists.
func (t Token) WellFormed() bool {
	text := t.Plaintext()
	if len(text) != tokenLength || text[:len(tokenPrefix)] != tokenPrefix {
		return false
	}
	raw, err := base64.RawURLEncoding.DecodeString(text[len(tokenPrefix):])
	return err == nil && len(raw) == secretBytes+crc32.Size && // shorter if it contained line breaks, which decoding skips
		binary.BigEndian.Uint32(raw[secretBytes:]) == checksum(raw[:secretBytes])
}

func checksum(secret []byte) uint32 {
	return crc32.ChecksumIEEE(append([]byte(tokenPrefix), secret...))
}

// hash is the form in which a token is stored and looked up.
func (t Token) hash() [sha256.Size]byte { return sha256.Sum256([]byte(t.Plaintext())) }

// Format writes the prefix, for every verb.
func (Token) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, redactedText) }

// LogValue is the prefix.
func (Token) LogValue() slog.Value { return slog.StringValue(redactedText) }

// MarshalText returns the prefix.
func (Token) MarshalText() ([]byte, error) { return []byte(redactedText), nil }

// TokenStore mints tokens and redeems them, each at most once. It is safe for
// concurrent use, in any number of processes.
type TokenStore struct {
	db *pgxpool.Pool
}

// NewTokenStore makes a store. The pool is for the verbs without Tx.
func NewTokenStore(db *pgxpool.Pool) *TokenStore { return &TokenStore{db} }

// Grant is what a token grants.
type Grant struct {
	// Purpose is the kind of token. Subject is the session or customer it is
	// for. Both have 1–255 characters, and both must be given again to redeem
	// the token.
	Purpose, Subject string
	// Payload is returned when the token is redeemed, byte for byte: JSON of at
	// most GrantPayloadMax bytes, with the rules of a job's arguments; null if
	// empty.
	Payload json.RawMessage
	// TTL is how long the token can be redeemed, 1 s to TTLMax.
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
	// Token is the plaintext, which is returned only here.
	Token     Token
	ExpiresAt time.Time
}

// Mint makes a token. It can be redeemed from now on until it expires, on the
// database's clock. The error for invalid input is an [*InvalidError].
func (s *TokenStore) Mint(ctx context.Context, tenantID uuid.UUID, grant Grant) (Minted, error) {
	minted, err := s.MintMany(ctx, tenantID, []Grant{grant})
	if err != nil {
		return Minted{}, err
	}
	return minted[0], nil
}

// MintTx is [TokenStore.Mint] in the caller's transaction: the token exists
// once that has committed.
func (s *TokenStore) MintTx(ctx context.Context, tx pgx.Tx, tenantID uuid.UUID, grant Grant) (Minted, error) {
	minted, err := s.MintManyTx(ctx, tx, tenantID, []Grant{grant})
	if err != nil {
		return Minted{}, err
	}
	return minted[0], nil
}

// MintMany makes a token for each grant, at most MintMax, in their order; all
// or none.
func (s *TokenStore) MintMany(ctx context.Context, tenantID uuid.UUID, grants []Grant) ([]Minted, error) {
	return inTx(ctx, s.db, func(tx pgx.Tx) ([]Minted, error) { return s.MintManyTx(ctx, tx, tenantID, grants) })
}

const mintSQL = `
INSERT INTO expiring_tokens (tenant_id, token_hash, purpose, subject, payload, created_at, expires_at)
SELECT $1, m.token_hash, m.purpose, m.subject, m.payload::json, now.at, now.at + m.ttl * interval '1 microsecond'
FROM unnest($2::bytea[], $3::text[], $4::text[], $5::text[], $6::bigint[])
     AS m (token_hash, purpose, subject, payload, ttl),
     (SELECT clock_timestamp() AS at) AS now
RETURNING token_hash, expires_at`

// MintManyTx is [TokenStore.MintMany] in the caller's transaction. It reads
// nothing, so it is correct at every isolation level.
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
	stored, err := pgx.CollectRows(rows, pgx.RowToStructByPos[struct {
		Hash      []byte
		ExpiresAt time.Time
	}])
	if err != nil {
		return nil, fmt.Errorf("mint %d tokens: %w", n, err)
	}
	for _, s := range stored {
		minted[place[string(s.Hash)]].ExpiresAt = s.ExpiresAt
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
