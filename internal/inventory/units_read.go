package inventory

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/postings"
)

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
	rows, err := db.Query(ctx, blockSQL, tenantID, block)
	if err != nil {
		return BlockCounts{}, fmt.Errorf("read block %s: %w", block, err)
	}
	counts, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[BlockCounts])
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
	Items []postings.Unit
	// NextCursor is the cursor of the next page; empty on the last page.
	NextCursor string
}

// ListUnits returns a page of the units of a block in the order of their ids,
// and the counts of the whole block, which are read just before: limit of them (0: [DefaultPage]; at most [MaxPage]), after the cursor of an
// earlier page (empty: from the start). A unit that exists all the time is on
// exactly one page.
//
// Errors: those of CountUnits, and *InvalidError for a bad limit or cursor.
func ListUnits(ctx context.Context, db audit.Querier, tenantID uuid.UUID, block string, limit int, cursor string) (UnitPage, error) {
	if limit == 0 {
		limit = DefaultPage
	}
	if limit < 1 || limit > MaxPage {
		return UnitPage{}, &InvalidError{Field: "limit", Message: fmt.Sprintf("must be between 1 and %d", MaxPage)}
	}
	after, err := decodeCursor(cursor)
	if err != nil {
		return UnitPage{}, err
	}
	counts, err := CountUnits(ctx, db, tenantID, block)
	if err != nil {
		return UnitPage{}, err
	}
	// One more row than the page shows whether there is another page.
	items, err := postings.List(ctx, db, postings.Block{TenantID: tenantID, Block: block}, after, limit+1)
	if err != nil {
		return UnitPage{}, err
	}
	page := UnitPage{BlockCounts: counts, Items: items}
	if len(items) > limit {
		page.Items, page.NextCursor = items[:limit], encodeCursor(items[limit-1].UnitID)
	}
	return page, nil
}

// GetUnit returns one unit of a block.
//
// Errors: those of CountUnits; ErrUnknownUnit; *InvalidError.
func GetUnit(ctx context.Context, db audit.Querier, tenantID uuid.UUID, block, unitID string) (postings.Unit, error) {
	if err := ValidateID("unit_id", unitID); err != nil {
		return postings.Unit{}, err
	}
	if _, err := CountUnits(ctx, db, tenantID, block); err != nil {
		return postings.Unit{}, err
	}
	units, err := postings.Get(ctx, db, postings.Block{TenantID: tenantID, Block: block}, []string{unitID})
	if err != nil {
		return postings.Unit{}, err
	}
	if len(units) == 0 {
		return postings.Unit{}, fmt.Errorf("unit %s of block %s: %w", unitID, block, ErrUnknownUnit)
	}
	return units[0], nil
}

// CheckUnits returns an [*InvalidError] that names the first of the units that
// the block does not have, by its place: unit_ids[2]. It returns nil for a block
// that the tenant does not have: a request for it fails with UnknownVariant.
// The ids are distinct. It locks nothing; units are never deleted.
func CheckUnits(ctx context.Context, db audit.Querier, tenantID uuid.UUID, block string, unitIDs []string) error {
	units, err := postings.Get(ctx, db, postings.Block{TenantID: tenantID, Block: block}, unitIDs)
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
