package tokens

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/internal/pg"
	"github.com/holdfast/holdfast/internal/purge"
)

// Grant is a token to be stored.
type Grant struct {
	Text             string
	Purpose, Subject string
	Payload          json.RawMessage // null if empty
	TTL              time.Duration
}

const mintSQL = `
INSERT INTO expiring_tokens (tenant_id, token_hash, purpose, subject, payload, created_at, expires_at)
SELECT $1, m.token_hash, m.purpose, m.subject, m.payload::json, now.at, now.at + m.ttl * interval '1 microsecond'
FROM unnest($2::bytea[], $3::text[], $4::text[], $5::text[], $6::bigint[])
     AS m (token_hash, purpose, subject, payload, ttl),
     (SELECT clock_timestamp() AS at) AS now
RETURNING token_hash, expires_at`

// MintTx stores the tokens, and returns in their order when they expire. It
// reads nothing, so it is correct at every isolation level.
func MintTx(ctx context.Context, tx pgx.Tx, tenantID uuid.UUID, grants []Grant) ([]time.Time, error) {
	n := len(grants)
	expiry, indexes := make([]time.Time, n), make(map[string]int, n)
	hashes, texts, ttls := make([][]byte, n), make([]string, 3*n), make([]int64, n)
	for i, g := range grants {
		hash := hashOf(g.Text)
		hashes[i], indexes[string(hash[:])] = hash[:], i
		texts[i], texts[n+i], texts[2*n+i], ttls[i] = g.Purpose, g.Subject, string(g.Payload), g.TTL.Microseconds()
		if len(g.Payload) == 0 {
			texts[2*n+i] = "null"
		}
	}
	rows, err := tx.Query(ctx, mintSQL, tenantID, hashes, texts[:n], texts[n:2*n], texts[2*n:], ttls) //nolint:rowserrcheck // ForEachRow returns it
	if err != nil {
		return nil, fmt.Errorf("mint %d tokens: %w", n, err)
	}
	var hash []byte
	var expiresAt time.Time
	_, err = pgx.ForEachRow(rows, []any{&hash, &expiresAt}, func() error {
		expiry[indexes[string(hash)]] = expiresAt
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("mint %d tokens: %w", n, err)
	}
	return expiry, nil
}

// purgeSQL reads the clock once, so that the clock bounds the index scan.
const purgeSQL = `
WITH old AS MATERIALIZED (
    SELECT tenant_id, token_hash
    FROM expiring_tokens
    WHERE expires_at < (SELECT clock_timestamp()) - $1::interval
    ORDER BY expires_at
    LIMIT $2
    FOR UPDATE SKIP LOCKED
)
DELETE FROM expiring_tokens t
USING old
WHERE t.tenant_id = old.tenant_id AND t.token_hash = old.token_hash`

// Purge deletes up to limit tokens, of all tenants, that expired longer ago
// than retention by the database's clock, spent or not, the earliest first, and
// returns how many. From then on they are unknown. Several processes may run it
// at once.
func Purge(ctx context.Context, db *pgxpool.Pool, retention time.Duration, limit int) (int64, error) {
	return purge.Old(ctx, db, "expired tokens", purgeSQL, max(retention, 0), limit)
}

// key is a token's primary key.
type key struct {
	tenant uuid.UUID
	hash   [sha256.Size]byte
}

func compareKeys(a, b key) int {
	return cmp.Or(bytes.Compare(a.tenant[:], b.tenant[:]), bytes.Compare(a.hash[:], b.hash[:]))
}

func columnsOf(keys []key) (tenants [][16]byte, hashes [][]byte) {
	tenants, hashes = make([][16]byte, len(keys)), make([][]byte, len(keys))
	for i := range keys {
		tenants[i], hashes[i] = keys[i].tenant, keys[i].hash[:]
	}
	return tenants, hashes
}

// token is the row of a token.
type token struct {
	tenant           [16]byte
	hash             []byte
	purpose, subject string
	payload          json.RawMessage
	expiresAt        time.Time
	used             bool
}

// Locked are tokens that one transaction reads, locks and redeems. The zero
// value is ready for use.
type Locked struct {
	found    map[key]*token
	redeemed []key
}

const readSQL = `
SELECT t.tenant_id, t.token_hash, t.purpose, t.subject, t.payload, t.expires_at, t.consumed_at IS NOT NULL AS used
FROM unnest($1::uuid[], $2::bytea[]) AS asked (tenant_id, token_hash)
JOIN expiring_tokens t USING (tenant_id, token_hash)
ORDER BY t.tenant_id, t.token_hash`

const lockSQL = readSQL + `
FOR NO KEY UPDATE OF t`

// QueueLock adds to b what locks the token, if it is well-formed.
func (l *Locked) QueueLock(b *pgx.Batch, p *Presented) {
	if p.wellFormed {
		l.queue(b, lockSQL, []key{p.key})
	}
}

// queue adds to b what reads the tokens; asked is sorted.
func (l *Locked) queue(b *pgx.Batch, statement string, asked []key) {
	if l.found == nil {
		l.found = make(map[key]*token)
	}
	if len(asked) == 0 {
		return
	}
	tenants, hashes := columnsOf(slices.Compact(asked))
	b.Queue(statement, tenants, hashes).Query(func(rows pgx.Rows) error {
		var t token
		_, err := pgx.ForEachRow(rows, []any{&t.tenant, &t.hash, &t.purpose, &t.subject, &t.payload, &t.expiresAt, &t.used}, func() error {
			found := t
			found.payload = bytes.Clone(t.payload)
			l.found[key{t.tenant, [sha256.Size]byte(t.hash)}] = &found
			return nil
		})
		return err
	})
}

// Refusal returns why the token can't be redeemed at the moment now, or "".
func (l *Locked) Refusal(p *Presented, now time.Time) RefusedError {
	if !p.wellFormed {
		return ErrMalformed
	}
	t := l.found[p.key]
	switch {
	case t == nil:
		return ErrUnknown
	case t.purpose != p.Purpose && (t.purpose != p.OrPurpose || p.OrPurpose == ""):
		return ErrPurpose
	case t.subject != p.Subject:
		return ErrSubject
	case t.used:
		return ErrUsed
	case !now.Before(t.expiresAt):
		return ErrExpired
	}
	return ""
}

// Redeem records that a token that is not refused is to be redeemed, and
// returns its payload.
func (l *Locked) Redeem(p *Presented) json.RawMessage {
	t := l.found[p.key]
	t.used = true
	l.redeemed = append(l.redeemed, p.key)
	return t.payload
}

const redeemSQL = `
UPDATE expiring_tokens t
SET consumed_at = $3
FROM unnest($1::uuid[], $2::bytea[]) AS s (tenant_id, token_hash)
WHERE t.tenant_id = s.tenant_id AND t.token_hash = s.token_hash AND t.consumed_at IS NULL`

// QueueWrite adds to b what redeems the tokens.
func (l *Locked) QueueWrite(b *pgx.Batch, now time.Time) {
	if len(l.redeemed) == 0 {
		return
	}
	tenants, hashes := columnsOf(l.redeemed)
	b.Queue(redeemSQL, tenants, hashes, now).Exec(pg.Reached(len(l.redeemed), "spending tokens"))
}
