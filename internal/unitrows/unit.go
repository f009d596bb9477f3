package unitrows

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Status is the status of a unit.
type Status string

// The three statuses. Inactive is final, unless the unit is returned.
const (
	Active          Status = "active"
	PendingInactive Status = "pending_inactive"
	Inactive        Status = "inactive"
)

// UnitsMax is how many units one call names or takes at most.
const UnitsMax = 1000

// Block names a block of units.
type Block struct {
	TenantID uuid.UUID
	Block    string
}

// Unit is a unit as it is read.
type Unit struct {
	UnitID string
	// Position is the place of the unit within its block, from 1. Units with
	// consecutive positions are neighbours.
	Position int64
	Status   Status
	// ReservationID owns a pending unit, and took an inactive one; the zero id
	// for an active one.
	ReservationID uuid.UUID
}

// ErrChanged means that a unit is not in the state that the caller read: it was
// changed without the lock of its block. Roll back, and read it again.
var ErrChanged = errors.New("unit: a unit has changed since it was read")

// Querier is a pool, a connection or a transaction.
type Querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

const unitColumns = `p.unit_id, p.position, p.status, p.reservation_id`

func toUnit(row pgx.CollectableRow) (u Unit, err error) {
	var owner *[16]byte
	err = row.Scan(&u.UnitID, &u.Position, (*string)(&u.Status), &owner)
	if owner != nil {
		u.ReservationID = *owner
	}
	return u, err
}

func collect(ctx context.Context, db Querier, what, sql string, args ...any) ([]Unit, error) {
	rows, err := db.Query(ctx, sql, args...)
	if err != nil {
		return nil, fmt.Errorf("unit: read %s: %w", what, err)
	}
	units, err := pgx.CollectRows(rows, toUnit)
	if err != nil {
		return nil, fmt.Errorf("unit: read %s: %w", what, err)
	}
	return units, nil
}

// getSQL finds each unit by primary key; see lockNamed.
const getSQL = `
SELECT ` + unitColumns + `
FROM unnest($3::text[]) AS wanted (unit_id)
CROSS JOIN LATERAL (
    SELECT u.unit_id, u.position, u.status, u.reservation_id
    FROM postings u
    WHERE u.tenant_id = $1 AND u.block = $2 AND u.unit_id = wanted.unit_id
    LIMIT 1
) p
ORDER BY p.position`

// Get returns those of the named units that exist in the block, in the order of
// their positions. It locks nothing.
func Get(ctx context.Context, db Querier, block Block, unitIDs []string) ([]Unit, error) {
	return collect(ctx, db, "units of block "+block.Block, getSQL, block.TenantID, block.Block, unitIDs)
}

const activeSQL = `
SELECT ` + unitColumns + `
FROM postings p
WHERE p.tenant_id = $1 AND p.block = $2 AND p.status = 'active' AND (p.position, p.unit_id) > ($3, $4)
ORDER BY p.position, p.unit_id
LIMIT $5`

// ListActive returns up to limit active units of the block that follow the
// given one, in the order of their positions. The zero Unit is before the
// first. It locks nothing.
func ListActive(ctx context.Context, db Querier, block Block, after Unit, limit int) ([]Unit, error) {
	return collect(ctx, db, "active units of block "+block.Block, activeSQL, block.TenantID, block.Block, after.Position, after.UnitID, limit)
}

const pageSQL = `
SELECT ` + unitColumns + `
FROM postings p
WHERE p.tenant_id = $1 AND p.block = $2 AND p.unit_id > $3
ORDER BY p.unit_id
LIMIT $4`

// List returns up to limit units of the block in any status, in the order of
// their ids, after the given id. It locks nothing.
func List(ctx context.Context, db Querier, block Block, after string, limit int) ([]Unit, error) {
	return collect(ctx, db, "units of block "+block.Block, pageSQL, block.TenantID, block.Block, after, limit)
}

// Claim is the units of a block that a reservation takes.
type Claim struct {
	Block
	ReservationID uuid.UUID
	UnitIDs       []string
}

// The conditions on the status are inside a CASE, which keeps the planner to the
// primary key. With plain conditions it could read all active units of a block,
// on a table that grew since it was last analysed.

const reserveClaimsSQL = `
UPDATE postings p
SET status = 'pending_inactive', reservation_id = c.reservation_id
` + fromClaims + `
  AND CASE WHEN p.status = 'active' THEN true END`

// fromClaims joins the units of claims.
const fromClaims = `FROM unnest($1::uuid[], $2::text[], $3::text[], $4::uuid[]) AS c (tenant_id, block, unit_id, reservation_id)
WHERE p.tenant_id = c.tenant_id AND p.block = c.block AND p.unit_id = c.unit_id`

// QueueReserve adds to b one statement that reserves the units of the claims,
// whose units are distinct. It fails the batch with ErrChanged unless all of
// them are active. The caller has locked the blocks.
func QueueReserve(b *pgx.Batch, claims []Claim) { queueClaims(b, "reserve", reserveClaimsSQL, claims) }

const releaseClaimsSQL = `
UPDATE postings p
SET status = 'active', reservation_id = NULL
` + fromClaims + `
  AND CASE WHEN p.reservation_id = c.reservation_id THEN p.status = 'pending_inactive' END`

// QueueRelease adds to b one statement that releases the units of the claims.
// It fails the batch with ErrChanged unless each of them is pending and owned
// by the reservation of its claim. The caller has locked the blocks.
func QueueRelease(b *pgx.Batch, claims []Claim) { queueClaims(b, "release", releaseClaimsSQL, claims) }

const finalizeClaimsSQL = `
UPDATE postings p
SET status = 'inactive'
` + fromClaims + `
  AND CASE WHEN p.reservation_id = c.reservation_id THEN p.status = 'pending_inactive' END`

// QueueFinalize is QueueRelease for units that are taken for good.
func QueueFinalize(b *pgx.Batch, claims []Claim) {
	queueClaims(b, "finalize", finalizeClaimsSQL, claims)
}

const returnClaimsSQL = `
UPDATE postings p
SET status = 'active', reservation_id = NULL
` + fromClaims + `
  AND CASE WHEN p.reservation_id = c.reservation_id THEN p.status = 'inactive' END`

// QueueReturn adds to b one statement that makes units active again that the
// reservation of their claim has taken for good. It fails the batch with
// ErrChanged unless each of them is. The caller has locked the blocks.
func QueueReturn(b *pgx.Batch, claims []Claim) { queueClaims(b, "return", returnClaimsSQL, claims) }

func queueClaims(b *pgx.Batch, verb, sql string, claims []Claim) {
	var tenants, owners [][16]byte
	var blocks, units []string
	for _, c := range claims {
		for _, id := range c.UnitIDs {
			tenants, owners = append(tenants, c.TenantID), append(owners, c.ReservationID)
			blocks, units = append(blocks, c.Block.Block), append(units, id)
		}
	}
	if len(units) > 0 {
		b.Queue(sql, tenants, blocks, units, owners).Exec(exactly(len(units), verb))
	}
}

// exactly fails a batch whose guarded statement did not reach all n units.
func exactly(n int, verb string) func(pgconn.CommandTag) error {
	return func(tag pgconn.CommandTag) error {
		if got := tag.RowsAffected(); got != int64(n) {
			return fmt.Errorf("unit: %s reached %d of %d units: %w", verb, got, n, ErrChanged)
		}
		return nil
	}
}

const insertSQL = `
INSERT INTO postings (tenant_id, block, unit_id, position)
SELECT $1, $2, n.unit_id, n.position
FROM unnest($3::text[], $4::bigint[]) AS n (unit_id, position)
ON CONFLICT (tenant_id, block, unit_id) DO NOTHING`

// New is a unit to be made.
type New struct {
	UnitID string
	// Position is 1 or more. Units of one block with the same position are not
	// neighbours.
	Position int64
}

// InsertTx makes the units that the block does not have yet, active, and
// returns how many it made. The ids are distinct. The caller has locked the
// block, so that no other transaction adds units to it.
func InsertTx(ctx context.Context, tx pgx.Tx, block Block, units []New) (int64, error) {
	ids, positions := make([]string, len(units)), make([]int64, len(units))
	for i, u := range units {
		ids[i], positions[i] = u.UnitID, u.Position
	}
	tag, err := tx.Exec(ctx, insertSQL, block.TenantID, block.Block, ids, positions)
	if err != nil {
		return 0, fmt.Errorf("unit: add %d units to block %s: %w", len(units), block.Block, err)
	}
	return tag.RowsAffected(), nil
}

const deleteSQL = `DELETE FROM postings WHERE tenant_id = $1 AND block = $2`

// QueueDelete adds to b the statement that deletes the units of a block, which
// has none that are pending. The caller has locked its stock.
func QueueDelete(b *pgx.Batch, of Block) { b.Queue(deleteSQL, of.TenantID, of.Block) }
