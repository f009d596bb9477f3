package inventory

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/pg"
	"github.com/holdfast/holdfast/internal/unitrows"
)

const openBlockSQL = `
INSERT INTO inventory_stocks (tenant_id, variant_id, stock, named_units, waiting)
VALUES ($1, $2, 0, true, EXISTS (SELECT FROM waiting_requests w WHERE w.tenant_id = $1 AND w.variant_id = $2))
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

// AddUnitsTx adds units to a block, which it makes if there is none: those that
// the block does not have yet. The ids are distinct and valid, see
// [ValidateUnits]. It returns how many units it added, and writes one audit row
// (stock.adjusted) if it added any. A repeated call adds nothing.
//
// It locks the stock of the block. Other transactions see the units after the
// commit. The transaction must be READ COMMITTED.
//
// Errors: ErrCounted if the block's id is that of a variant whose units are
// only counted; *InvalidError if the block would have more than MaxStock units.
func AddUnitsTx(ctx context.Context, tx pgx.Tx, tenantID uuid.UUID, block string, units []NewUnit, origin audit.Origin) (added int64, err error) {
	last, err := lockBlockTx(ctx, tx, tenantID, block, len(units))
	if err != nil {
		return 0, err
	}
	placed := make([]unitrows.New, len(units))
	for i, u := range units {
		placed[i] = unitrows.New{UnitID: u.UnitID, Position: cmp.Or(u.Position, last+1)}
		last = max(last, placed[i].Position)
	}
	return insertUnitsTx(ctx, tx, unitrows.Block{TenantID: tenantID, Block: block}, placed, last, origin)
}

// lockBlockTx locks the stock of a block that is to get up to more units, and
// returns its last position. It makes the block if there is none.
//
// Errors: those of AddUnitsTx.
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
func insertUnitsTx(ctx context.Context, tx pgx.Tx, block unitrows.Block, units []unitrows.New, last int64, origin audit.Origin) (added int64, err error) {
	added, err = unitrows.InsertTx(ctx, tx, block, units)
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

// ErrUnknownUnit means that the block has no such unit.
var ErrUnknownUnit = errors.New("unknown unit")

// BlockCounts is how many units of a block are in each status. A unit whose
// hold is due is pending until the hold is expired.
type BlockCounts struct {
	Active, Pending, Inactive int64
	// NamedUnits is false for a variant whose units are only counted.
	NamedUnits bool
}

// blockSQL reads the counters of the block and not its units.
const blockSQL = `
SELECT s.stock - s.reserved AS active, s.reserved AS pending, s.units - s.stock AS inactive, s.named_units
FROM inventory_stocks s
WHERE s.tenant_id = $1 AND s.variant_id = $2`

// CountUnits counts the units of a block by status. The cost does not depend on
// how many there are.
//
// Errors: ErrUnknownVariant for a block that the tenant does not have;
// ErrCounted for a variant whose units are only counted; *InvalidError.
func CountUnits(ctx context.Context, db audit.Querier, tenantID uuid.UUID, block string) (BlockCounts, error) {
	if err := ValidateID("block", block); err != nil {
		return BlockCounts{}, err
	}
	counts, err := pg.SelectOne(ctx, db, pgx.RowToStructByName[BlockCounts], blockSQL, tenantID, block)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		err = ErrUnknownVariant
	case err == nil && !counts.NamedUnits:
		err = ErrCounted
	}
	if err != nil {
		return BlockCounts{}, fmt.Errorf("read block %s: %w", block, err)
	}
	return counts, nil
}

// refuseCounted returns ErrCounted if the block's id is that of a variant whose
// units are only counted.
func refuseCounted(ctx context.Context, db audit.Querier, tenantID uuid.UUID, block string) error {
	_, err := CountUnits(ctx, db, tenantID, block)
	if errors.Is(err, ErrUnknownVariant) {
		return nil
	}
	return err
}

// UnitPage is one page of the units of a block.
type UnitPage struct {
	BlockCounts
	Items []unitrows.Unit
	// NextCursor is the cursor of the next page; empty on the last page.
	NextCursor string
}

// ListUnits returns a page of the units of a block in the order of their ids,
// and the counts of the whole block, which are read just before: limit of them
// (0: [DefaultPage]; at most [MaxPage]), after the cursor of an earlier page
// (empty: from the start). A unit that exists all the time is on exactly one
// page.
//
// Errors: those of CountUnits, and *InvalidError for a bad limit or cursor.
func ListUnits(ctx context.Context, db audit.Querier, tenantID uuid.UUID, block string, limit int, cursor string) (UnitPage, error) {
	limit, after, err := pageBounds(limit, cursor)
	if err != nil {
		return UnitPage{}, err
	}
	counts, err := CountUnits(ctx, db, tenantID, block)
	if err != nil {
		return UnitPage{}, err
	}
	// One more row than the page shows whether there is another page.
	items, err := unitrows.List(ctx, db, unitrows.Block{TenantID: tenantID, Block: block}, after, limit+1)
	if err != nil {
		return UnitPage{}, err
	}
	items, next := cutPage(items, limit, func(u *unitrows.Unit) string { return u.UnitID })
	return UnitPage{BlockCounts: counts, Items: items, NextCursor: next}, nil
}

// GetUnit returns one unit of a block.
//
// Errors: those of CountUnits; ErrUnknownUnit; *InvalidError.
func GetUnit(ctx context.Context, db audit.Querier, tenantID uuid.UUID, block, unitID string) (unitrows.Unit, error) {
	if err := ValidateID("unit_id", unitID); err != nil {
		return unitrows.Unit{}, err
	}
	if _, err := CountUnits(ctx, db, tenantID, block); err != nil {
		return unitrows.Unit{}, err
	}
	units, err := unitrows.Get(ctx, db, unitrows.Block{TenantID: tenantID, Block: block}, []string{unitID})
	if err != nil {
		return unitrows.Unit{}, err
	}
	if len(units) == 0 {
		return unitrows.Unit{}, fmt.Errorf("unit %s of block %s: %w", unitID, block, ErrUnknownUnit)
	}
	return units[0], nil
}

// CheckUnits returns an [*InvalidError] that names the first of the units that
// the block does not have, by its index: unit_ids[2]. It returns nil for a block
// that the tenant does not have: a request for it fails with UnknownVariant.
// The ids are distinct. It locks nothing.
func CheckUnits(ctx context.Context, db audit.Querier, tenantID uuid.UUID, block string, unitIDs []string) error {
	units, err := unitrows.Get(ctx, db, unitrows.Block{TenantID: tenantID, Block: block}, unitIDs)
	if err != nil || len(units) == len(unitIDs) {
		return err
	}
	_, err = CountUnits(ctx, db, tenantID, block)
	switch {
	case errors.Is(err, ErrUnknownVariant), errors.Is(err, ErrCounted):
		return nil
	case err != nil:
		return err
	}
	known := make(map[string]bool, len(units))
	for _, u := range units {
		known[u.UnitID] = true
	}
	for i, id := range unitIDs {
		if !known[id] {
			return &InvalidError{Field: fmt.Sprintf("unit_ids[%d]", i), Message: "is not a unit of the block"}
		}
	}
	return nil
}
