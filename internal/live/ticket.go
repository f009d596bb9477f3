package live

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/holdfast/holdfast/internal/tenants"
)

// A ticket's plaintext is the prefix and 256 random bits in base64 (RFC 4648,
// section 5, without padding).
const (
	ticketPrefix = "hlt_"
	ticketBytes  = 32
	ticketLength = len(ticketPrefix) + 43
	// TicketTTL is how long a ticket is good, by the database's clock.
	TicketTTL = time.Minute
	// TicketsMax is how many unused tickets of a tenant are good at one time,
	// and KeyTicketsMax how many of them one key has.
	TicketsMax    = 5000
	KeyTicketsMax = 2000
	// OpsTickets are how many of a tenant's tickets only keys with the scope ops
	// make, so that a storefront does not lock its operators out.
	OpsTickets = 500
)

// Errors of tickets.
var (
	// ErrTicketRefused means that a ticket is not good. It is the same for
	// malformed, unknown, used and expired ones, and for those of a revoked key.
	ErrTicketRefused = errors.New("the ticket is not good")
	// ErrTooManyTickets means that the key or its tenant has as many unused
	// tickets as the key may add to: KeyTicketsMax, or TicketsMax, or without the
	// scope ops TicketsMax less OpsTickets.
	ErrTooManyTickets = errors.New("the key or its tenant has too many unused tickets")
)

// Holder is the owner of a connection: a key, as it was when its ticket was
// made.
type Holder struct {
	TenantID uuid.UUID
	KeyID    uuid.UUID
	Scopes   []tenants.Scope
}

// Ticket is a ticket that was made.
type Ticket struct {
	// Plaintext is the ticket. It is stored nowhere.
	Plaintext string
	ExpiresAt time.Time
}

// Format prints nothing of the plaintext.
func (t Ticket) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(ticketPrefix + "…")) }

// mintSQL also deletes some tickets of the tenant that have expired, so that a
// tenant cannot fill the table between two purges.
const mintSQL = `
WITH expired AS MATERIALIZED (
    SELECT tenant_id, hash
    FROM live_tickets
    WHERE tenant_id = $1 AND expires_at <= (SELECT clock_timestamp())
    ORDER BY expires_at
    LIMIT 10
    FOR UPDATE SKIP LOCKED
), deleted AS (
    DELETE FROM live_tickets AS t
    USING expired AS e
    WHERE t.tenant_id = e.tenant_id AND t.hash = e.hash
), good AS (
    SELECT count(*) AS of_tenant, count(*) FILTER (WHERE key_id = $3) AS of_key
    FROM (
        SELECT key_id
        FROM live_tickets
        WHERE tenant_id = $1 AND expires_at > (SELECT clock_timestamp())
        LIMIT $6
    ) AS counted
)
INSERT INTO live_tickets (tenant_id, hash, key_id, scopes, expires_at)
SELECT $1, $2, $3, $4, clock_timestamp() + $5::interval
FROM good
WHERE of_tenant < $6 AND of_key < $7
RETURNING expires_at`

// MintTx makes a ticket for a key, in the caller's transaction. It is correct at
// READ COMMITTED; concurrent calls may exceed a limit by their number.
//
// Errors: ErrTooManyTickets.
func MintTx(ctx context.Context, tx pgx.Tx, owner tenants.Principal) (Ticket, error) {
	secret := make([]byte, ticketBytes)
	rand.Read(secret) // never fails: the program ends instead
	t := Ticket{Plaintext: ticketPrefix + base64.RawURLEncoding.EncodeToString(secret)}
	hash := sha256.Sum256([]byte(t.Plaintext))
	limit := TicketsMax
	if !owner.Has(tenants.ScopeOps) {
		limit -= OpsTickets
	}
	err := tx.QueryRow(ctx, mintSQL, owner.TenantID, hash[:], owner.KeyID, owner.Scopes, TicketTTL, limit, KeyTicketsMax).Scan(&t.ExpiresAt)
	if errors.Is(err, pgx.ErrNoRows) {
		err = ErrTooManyTickets
	}
	if err != nil {
		return Ticket{}, fmt.Errorf("make a live ticket: %w", err)
	}
	return t, nil
}

const takeSQL = `
DELETE FROM live_tickets AS t
USING api_keys AS k
WHERE t.hash = $1
  AND t.expires_at > clock_timestamp()
  AND k.tenant_id = t.tenant_id AND k.key_id = t.key_id AND k.revoked_at IS NULL
RETURNING t.tenant_id, t.key_id, t.scopes`

// querier is a pool or a connection.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

// Take uses a ticket up and returns its owner. Of several calls with one
// ticket, in any process, one succeeds.
//
// Errors: ErrTicketRefused.
func Take(ctx context.Context, db querier, plaintext string) (Holder, error) {
	if len(plaintext) != ticketLength || !strings.HasPrefix(plaintext, ticketPrefix) {
		return Holder{}, ErrTicketRefused
	}
	hash := sha256.Sum256([]byte(plaintext))
	rows, _ := db.Query(ctx, takeSQL, hash[:])
	holder, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[Holder])
	if errors.Is(err, pgx.ErrNoRows) {
		return Holder{}, ErrTicketRefused
	}
	if err != nil {
		return Holder{}, fmt.Errorf("take a live ticket: %w", err)
	}
	return holder, nil
}

// purgeSQL reads the clock once, so that the clock bounds the index scan.
const purgeSQL = `
WITH expired AS MATERIALIZED (
    SELECT tenant_id, hash
    FROM live_tickets
    WHERE expires_at <= (SELECT clock_timestamp())
    ORDER BY expires_at
    LIMIT $1
    FOR UPDATE SKIP LOCKED
)
DELETE FROM live_tickets AS t
USING expired AS e
WHERE t.tenant_id = e.tenant_id AND t.hash = e.hash`

// PurgeTickets deletes up to limit tickets, of all tenants, that have expired,
// and returns how many. Several processes may run it at once.
func PurgeTickets(ctx context.Context, db querier, limit int) (int64, error) {
	tag, err := db.Exec(ctx, purgeSQL, limit)
	if err != nil {
		return 0, fmt.Errorf("purge live tickets: %w", err)
	}
	return tag.RowsAffected(), nil
}
