package postings

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/unitrows"
)

// Block names a block of units.
type Block struct {
	TenantID uuid.UUID
	Block    string
}

// Unit is one unit of a block.
type Unit struct {
	UnitID string
	// Position is the place of the unit within its block, 1 or more. Units with
	// consecutive positions are neighbours. Units with the same position are
	// not.
	Position int64
	// Status is active, pending_inactive or inactive. Inactive is final.
	Status string
	// ReservationID owns a pending unit, and took an inactive one; the zero id
	// for an active one.
	ReservationID uuid.UUID
}

// Querier is a pool, a connection or a transaction.
type Querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// InsertTx makes the units that the block does not have yet, active, and
// returns how many it made. It uses their ids, which are distinct, and their
// positions. The caller sees to it that no other transaction adds units to the
// block.
func InsertTx(ctx context.Context, tx pgx.Tx, block Block, units []Unit) (int64, error) {
	rows := make([]unitrows.New, len(units))
	for i, u := range units {
		rows[i] = unitrows.New{UnitID: u.UnitID, Position: u.Position}
	}
	return unitrows.InsertTx(ctx, tx, unitrows.Block(block), rows)
}

// List returns up to limit units of the block in any status, in the order of
// their ids, after the given id. It locks nothing.
func List(ctx context.Context, db Querier, block Block, after string, limit int) ([]Unit, error) {
	rows, err := unitrows.List(ctx, db, unitrows.Block(block), after, limit)
	if err != nil {
		return nil, err
	}
	units := make([]Unit, len(rows))
	for i, u := range rows {
		units[i] = Unit{u.UnitID, u.Position, string(u.Status), u.ReservationID}
	}
	return units, nil
}

// Counts is what has become of units that a reservation was to own.
type Counts struct {
	// Active units have no owner.
	Active int64
	// Pending and Inactive units are owned, and were finalized, by the
	// reservation.
	Pending, Inactive int64
	// Others are owned or were finalized by another reservation.
	Others int64
	// Unknown units do not exist in the block.
	Unknown int64
}

const countOwnedSQL = `
SELECT count(*) FILTER (WHERE p.status = 'active') AS active,
       count(*) FILTER (WHERE p.status = 'pending_inactive' AND p.reservation_id = $4) AS pending,
       count(*) FILTER (WHERE p.status = 'inactive' AND p.reservation_id = $4) AS inactive,
       count(*) FILTER (WHERE p.reservation_id <> $4) AS others,
       cardinality($3::text[]) - count(*) AS unknown
FROM unnest($3::text[]) AS wanted (unit_id)
CROSS JOIN LATERAL (
    SELECT u.status, u.reservation_id
    FROM postings u
    WHERE u.tenant_id = $1 AND u.block = $2 AND u.unit_id = wanted.unit_id
    LIMIT 1
) p`

// CountOwned counts the named units by their owner. It locks nothing: another
// transaction may change a unit that is not owned by the reservation at once,
// and units that it owns only by that reservation's own verbs. Errors:
// *InvalidError as for Reserve.
func CountOwned(ctx context.Context, db Querier, block Block, unitIDs []string, reservationID uuid.UUID) (Counts, error) {
	if err := validate(block, unitIDs, reservationID); err != nil {
		return Counts{}, err
	}
	rows, _ := db.Query(ctx, countOwnedSQL, block.TenantID, block.Block, unitIDs, reservationID)
	counts, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[Counts])
	if err != nil {
		return Counts{}, fmt.Errorf("postings: count units of block %s: %w", block.Block, err)
	}
	return counts, nil
}
