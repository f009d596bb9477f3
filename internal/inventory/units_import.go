package inventory

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/telemetry"
	"github.com/holdfast/holdfast/internal/unitrows"
)

// UnitImportReport is the result of an import of units.
type UnitImportReport struct {
	// Added counts the units that were made.
	Added int64 `json:"added"`
	// Unchanged counts the lines whose unit the block had already, because of
	// an earlier line or an earlier import.
	Unchanged int64 `json:"unchanged"`
	// Rejected counts the lines that had no effect.
	Rejected int64 `json:"rejected"`
	// RejectedLines are the first MaxRejectedLines of them, in order.
	RejectedLines []RejectedLine `json:"rejected_lines"`
}

// unitForm is how an import of units is read.
var unitForm = rowForm[NewUnit]{
	what:     "units",
	id:       "unit_id",
	required: []string{"unit_id"},
	fields: map[string]func(u *NewUnit, c cell) error{
		"unit_id": func(u *NewUnit, c cell) error { return c.text(&u.UnitID) },
		"position": func(u *NewUnit, c cell) error {
			position := new(int64)
			if err := number(c, &position); err != nil {
				return err
			}
			u.Position = *position
			if u.Position < 1 || u.Position > PositionMax {
				return c.mustBe(fmt.Sprintf("between 1 and %d", int64(PositionMax)))
			}
			return nil
		},
	},
	check: func(u *NewUnit) error {
		u.UnitID = strings.Clone(u.UnitID)
		return ValidateID("unit_id", u.UnitID)
	},
}

// ImportUnits adds one unit per line to a block, which it makes if there is
// none. CSV has a header with unit_id and, if wanted, position; NDJSON has
// objects with the same fields. A unit without a position gets the next one of
// the block. It reads r as a stream, so memory is bounded however long the input
// is. Lines take effect in their order, in transactions of 500, each with one
// audit row (stock.adjusted) if it added units.
//
// A line whose unit the block has already changes nothing, so sending the whole
// input again is safe. An invalid line is rejected and reported, and the others
// take effect. A position other than that of the unit that the block has is
// invalid: a unit does not move.
//
// An error ends the import: an [*InvalidError] with field "block", "format" or
// "header", or ErrCounted if the block's id is that of a variant whose units are
// only counted, before anything is imported; the error of r, or an outage of the
// database, after some batches. The report then has what is known to be
// imported; if the outcome of a commit is unknown, its batch is not counted.
//
// It locks the stock of the block for each batch: requests for its units
// are decided between the batches.
func ImportUnits(ctx context.Context, pool *pgxpool.Pool, tenantID uuid.UUID, block string, format Format, r io.Reader, origin audit.Origin) (_ UnitImportReport, err error) {
	ctx, done := telemetry.Verb(ctx, "inventory.import_units")
	defer func() { done(outcome(err)) }()
	if err := refuseCounted(ctx, pool, tenantID, block); err != nil {
		return UnitImportReport{RejectedLines: []RejectedLine{}}, err
	}
	t, err := importRows(ctx, pool, &unitForm, format, r, func(ctx context.Context, tx pgx.Tx, rows []row[NewUnit]) (importBatch, error) {
		return importUnitsTx(ctx, tx, unitrows.Block{TenantID: tenantID, Block: block}, rows, origin)
	})
	return UnitImportReport{Added: t.added, Unchanged: t.unchanged, Rejected: t.rejected, RejectedLines: t.lines}, err
}

// importUnitsTx adds the units of the rows.
func importUnitsTx(ctx context.Context, tx pgx.Tx, block unitrows.Block, rows []row[NewUnit], origin audit.Origin) (importBatch, error) {
	last, err := lockBlockTx(ctx, tx, block.TenantID, block.Block, len(rows))
	if err != nil {
		return importBatch{}, err
	}
	ids := make([]string, len(rows))
	for i := range rows {
		ids[i] = rows[i].value.UnitID
	}
	present, err := unitrows.Get(ctx, tx, block, ids)
	if err != nil {
		return importBatch{}, err
	}
	placed := place(rows, present, last)
	b := importBatch{added: int64(len(placed.added)), unchanged: placed.unchanged, refused: placed.refused}
	if b.added == 0 {
		return b, nil
	}
	added, err := insertUnitsTx(ctx, tx, block, placed.added, placed.last, origin)
	if err == nil && added != b.added {
		err = fmt.Errorf("added %d of %d units: the block was changed without its lock", added, b.added)
	}
	return b, err
}

// placement is what becomes of the rows of a batch.
type placement struct {
	added     []unitrows.New
	unchanged int64
	refused   []refusal
	last      int64 // the last position of the block with them
}

// place gives the new units of the rows their positions. present are those that
// the block has already, last is its last position. It is pure.
func place(rows []row[NewUnit], present []unitrows.Unit, last int64) placement {
	p := placement{last: last}
	positions := make(map[string]int64, len(rows))
	for _, u := range present {
		positions[u.UnitID] = u.Position
	}
	for _, r := range rows {
		u := r.value
		at, exists := positions[u.UnitID]
		switch {
		case exists && (u.Position == 0 || u.Position == at):
			p.unchanged++
		case exists:
			message := fmt.Sprintf("is not that of the unit, which is %d: a unit does not move", at)
			p.refused = append(p.refused, refusal{line: r.line, fault: &InvalidError{Field: "position", Message: message}})
		default:
			at = cmp.Or(u.Position, p.last+1)
			p.added = append(p.added, unitrows.New{UnitID: u.UnitID, Position: at})
			positions[u.UnitID] = at
			p.last = max(p.last, at)
		}
	}
	return p
}
