package inventory

import (
	"cmp"
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/postings"
)

const openBlockSQL = `
INSERT INTO inventory_stocks (tenant_id, variant_id, stock, named_units)
VALUES ($1, $2, 0, true)
ON CONFLICT (tenant_id, variant_id) DO NOTHING`

const lockBlockSQL = `
SELECT stock, named_units, last_position
FROM inventory_stocks
WHERE tenant_id = $1 AND variant_id = $2
FOR NO KEY UPDATE`

const growBlockSQL = `
UPDATE inventory_stocks
SET stock = stock + $3, units = units + $3, last_position = greatest(last_position, $4), updated_at = clock_timestamp()
WHERE tenant_id = $1 AND variant_id = $2 AND named_units`

// NewUnit is a unit to be added to a block.
type NewUnit struct {
	UnitID string
	// Position is the place of the unit within its block, from 1 to
	// PositionMax; 0 means after all that the block has. Units with consecutive
	// positions are neighbours: a gap separates the rows of a hall. Units with
	// the same position are not neighbours.
	Position int64
}

// PositionMax is the highest position of a unit that a caller can give.
const PositionMax = 1 << 40

// AddUnits adds units to a block, which it makes if there is none: those that
// the block does not have yet. The ids are distinct and valid, see
// [ValidateUnits]. It returns how many units it added, and writes one audit row
// (stock.adjusted) if it added any. A repeated call adds nothing.
//
// It locks the stock of the block. Other transactions see the units after the
// commit.
//
// Errors: ErrCounted if the block's id is that of a variant whose units are
// only counted; *InvalidError if the block would have more than MaxStock units.
func AddUnits(ctx context.Context, pool *pgxpool.Pool, tenantID uuid.UUID, block string, units []NewUnit, origin audit.Origin) (added int64, err error) {
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		added, err = AddUnitsTx(ctx, tx, tenantID, block, units, origin)
		return err
	})
	return added, err
}

// AddUnitsTx is [AddUnits] in the caller's transaction, which must be READ
// COMMITTED.
func AddUnitsTx(ctx context.Context, tx pgx.Tx, tenantID uuid.UUID, block string, units []NewUnit, origin audit.Origin) (added int64, err error) {
	last, err := lockBlockTx(ctx, tx, tenantID, block, len(units))
	if err != nil {
		return 0, err
	}
	placed := make([]postings.New, len(units))
	for i, u := range units {
		placed[i] = postings.New{UnitID: u.UnitID, Position: cmp.Or(u.Position, last+1)}
		last = max(last, placed[i].Position)
	}
	return insertUnitsTx(ctx, tx, postings.Block{TenantID: tenantID, Block: block}, placed, last, origin)
}

// lockBlockTx locks the stock of a block that is to get up to more units, and
// returns its last position. It makes the block if there is none.
//
// Errors: those of AddUnits.
func lockBlockTx(ctx context.Context, tx pgx.Tx, tenantID uuid.UUID, block string, more int) (last int64, err error) {
	if err := ValidateID("block", block); err != nil {
		return 0, err
	}
	if _, err := tx.Exec(ctx, openBlockSQL, tenantID, block); err != nil {
		return 0, fmt.Errorf("add units to block %s: %w", block, err)
	}
	var stock int64
	var isBlock bool
	if err := tx.QueryRow(ctx, lockBlockSQL, tenantID, block).Scan(&stock, &isBlock, &last); err != nil {
		return 0, fmt.Errorf("add units to block %s: %w", block, err)
	}
	switch {
	case !isBlock:
		return 0, fmt.Errorf("add units to block %s: %w", block, ErrCounted)
	case stock+int64(more) > MaxStock:
		return 0, &InvalidError{Field: "block", Message: fmt.Sprintf("would have more than %d units", MaxStock)}
	}
	return last, nil
}

// insertUnitsTx makes the units that a locked block does not have yet, counts
// them and writes the audit row. last is the last position of the block with
// them.
func insertUnitsTx(ctx context.Context, tx pgx.Tx, block postings.Block, units []postings.New, last int64, origin audit.Origin) (added int64, err error) {
	added, err = postings.InsertTx(ctx, tx, block, units)
	if err != nil || added == 0 {
		return added, err
	}
	if _, err := tx.Exec(ctx, growBlockSQL, block.TenantID, block.Block, added, last); err != nil {
		return 0, fmt.Errorf("add units to block %s: %w", block.Block, translated(err))
	}
	after, err := Get(ctx, tx, block.TenantID, block.Block)
	if err != nil {
		return 0, err
	}
	before := after
	before.Stock -= added
	e, err := entry("stock.adjusted", &before, after, origin)
	if err != nil {
		return 0, err
	}
	return added, audit.WriteTx(ctx, tx, []audit.Entry{e})
}
