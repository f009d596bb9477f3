package ops

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/horizon"
)

// Projection is the stored states of one projection.
type Projection struct {
	Name string `json:"name"`
	// Keys is how many states there are, Parked how many keys are parked, and
	// Position the highest audit id in a state.
	Keys      int64     `json:"keys"`
	Parked    int64     `json:"parked"`
	Position  int64     `json:"position"`
	UpdatedAt time.Time `json:"updated_at"`
}

// projectionsSQL reads all rows.
const projectionsSQL = `
SELECT p.projection_name, count(*) FILTER (WHERE p.version > 0), count(p.parked_at), max(p.position), max(p.updated_at)
FROM projection_snapshots p
GROUP BY p.projection_name
ORDER BY p.projection_name
LIMIT 1000`

// Projections returns what is stored of every projection, by name. It reads the
// whole table.
func Projections(ctx context.Context, db audit.Querier) ([]Projection, error) {
	rows, _ := db.Query(ctx, projectionsSQL)
	list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Projection])
	if err != nil {
		return nil, fmt.Errorf("read the projections: %w", err)
	}
	return list, nil
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

// parkedMax is how many keys ParkedKeys returns at most.
const parkedMax = 1000

// parkedSQL reads all rows: an index on parked_at would cost each write.
const parkedSQL = `
SELECT p.projection_name, p.tenant_id, p.key, p.parked_at, p.parked_audit_id, p.parked_reason
FROM projection_snapshots p
WHERE p.parked_at IS NOT NULL
ORDER BY p.parked_at
LIMIT $1`

// ParkedKeys returns the parked keys, those that were parked first before the
// others, at most 1,000. It reads the whole table.
func ParkedKeys(ctx context.Context, db audit.Querier) ([]ParkedKey, error) {
	rows, _ := db.Query(ctx, parkedSQL, parkedMax)
	list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[ParkedKey])
	if err != nil {
		return nil, fmt.Errorf("read the parked keys: %w", err)
	}
	return list, nil
}

const recordMissingSQL = `
SELECT coalesce((SELECT a.audit_id - 1 FROM audit_log a ORDER BY a.audit_id LIMIT 1), ` + horizon.Drawn + `)
FROM audit_log_audit_id_seq`

// RecordMissing returns the audit id up to which the record has no rows, 0 if it
// begins with the first one ever drawn. The missing rows were pruned, or their
// transactions were rolled back. The database has no row that distinguishes the
// two, so a caller that rebuilds projections from such a record must know.
func RecordMissing(ctx context.Context, db audit.Querier) (int64, error) {
	rows, _ := db.Query(ctx, recordMissingSQL)
	id, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[int64])
	if err != nil {
		return 0, fmt.Errorf("find the beginning of the record: %w", err)
	}
	return id, nil
}
