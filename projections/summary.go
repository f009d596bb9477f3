package projections

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/audit"
)

// Summary is the stored states of one projection.
type Summary struct {
	Name string `json:"name"`
	// Keys is how many states there are, Parked how many keys are parked, and
	// Position the highest audit id in a state.
	Keys      int64     `json:"keys"`
	Parked    int64     `json:"parked"`
	Position  int64     `json:"position"`
	UpdatedAt time.Time `json:"updated_at"`
}

// summariesSQL reads all rows.
const summariesSQL = `
SELECT p.projection_name, count(*) FILTER (WHERE p.version > 0), count(p.parked_at), max(p.position), max(p.updated_at)
FROM projection_snapshots p
GROUP BY p.projection_name
ORDER BY p.projection_name
LIMIT 1000`

// Summaries returns what is stored of every projection, by name. It reads the
// whole table.
func Summaries(ctx context.Context, db audit.Querier) ([]Summary, error) {
	rows, _ := db.Query(ctx, summariesSQL)
	list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Summary])
	return list, typed(err, "read the projections")
}

// ParkedKey is a key whose events a feed leaves out until it is rebuilt, because
// those that could not be folded have cost too much.
type ParkedKey struct {
	Name     string    `json:"name"`
	TenantID uuid.UUID `json:"tenant_id"`
	Key      string    `json:"key"`
	ParkedAt time.Time `json:"parked_at"`
	// AuditID is the first record that the state lacks since then, 0 if the
	// events were not records. Reason is the error of the event that parked it.
	AuditID int64  `json:"audit_id"`
	Reason  string `json:"reason"`
}

// parkedMax is how many keys Parked returns at most.
const parkedMax = 1000

// parkedSQL reads all rows: an index on parked_at would cost each write.
const parkedSQL = `
SELECT p.projection_name, p.tenant_id, p.key, p.parked_at, p.parked_audit_id, p.parked_reason
FROM projection_snapshots p
WHERE p.parked_at IS NOT NULL
ORDER BY p.parked_at
LIMIT $1`

// Parked returns the parked keys, those that were parked first before the
// others, at most 1,000. It reads the whole table.
func Parked(ctx context.Context, db audit.Querier) ([]ParkedKey, error) {
	rows, _ := db.Query(ctx, parkedSQL, parkedMax)
	list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[ParkedKey])
	return list, typed(err, "read the parked keys")
}
