package inventory

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/pg"
	"github.com/holdfast/holdfast/internal/telemetry"
	"github.com/holdfast/holdfast/postings"
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
	id:       "unit_id",
	required: []string{"unit_id"},
	csv: map[string]func(u *NewUnit, cell string) error{
		"unit_id": func(u *NewUnit, cell string) error { u.UnitID = cell; return nil },
		"position": func(u *NewUnit, cell string) error {
			var position *int64
			return u.place(csvNumber("position", cell, &position), &position)
		},
	},
	json: map[string]func(u *NewUnit, raw json.RawMessage) error{
		"unit_id": func(u *NewUnit, raw json.RawMessage) error { return jsonText("unit_id", raw, &u.UnitID) },
		"position": func(u *NewUnit, raw json.RawMessage) error {
			var position *int64
			return u.place(jsonValue("position", "a whole number", raw, &position), &position)
		},
	},
	check: func(u *NewUnit) error {
		u.UnitID = strings.Clone(u.UnitID)
		return ValidateID("unit_id", u.UnitID)
	},
}

// place sets the position that was read, unless the reading failed with err.
func (u *NewUnit) place(err error, position **int64) error {
	if err != nil {
		return err
	}
	u.Position = **position
	if u.Position < 1 || u.Position > PositionMax {
		return &InvalidError{Field: "position", Message: fmt.Sprintf("must be between 1 and %d", int64(PositionMax))}
	}
	return nil
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
	im := unitImporter{
		pool: pool, block: postings.Block{TenantID: tenantID, Block: block}, origin: origin,
		report: UnitImportReport{RejectedLines: []RejectedLine{}},
	}
	if err := refuseCounted(ctx, pool, tenantID, block); err != nil {
		return im.report, err
	}
	rows, err := newRowReader(&unitForm, format, r)
	if err != nil {
		return im.report, err
	}
	for more := true; more; {
		more, err = im.batch(ctx, rows)
		if err != nil {
			return im.report, fmt.Errorf("import units: %w", err)
		}
	}
	return im.report, nil
}

// unitImporter is a running import of units.
type unitImporter struct {
	pool   *pgxpool.Pool
	block  postings.Block
	origin audit.Origin
	report UnitImportReport
}

// batch reads and imports the next lines, and reports whether there are more.
func (im *unitImporter) batch(ctx context.Context, rows *rowReader[NewUnit]) (more bool, err error) {
	var bad rejections
	good, more, err := rows.batch(ctx, &bad)
	if err != nil {
		return false, err
	}
	_, err = bisect(ctx, good, &bad, im.commit)
	bad.report(&im.report.Rejected, &im.report.RejectedLines)
	return more, err
}

// commit runs one transaction over the rows, counts those that took effect, and
// returns those that were refused.
func (im *unitImporter) commit(ctx context.Context, rows []row[NewUnit]) (refused []refusal, err error) {
	var placed placement
	for tries := 1; ; tries++ {
		err = pgx.BeginFunc(ctx, im.pool, func(tx pgx.Tx) error {
			placed, err = im.placeTx(ctx, tx, rows)
			return err
		})
		if err == nil {
			im.report.Added += int64(len(placed.added))
			im.report.Unchanged += placed.unchanged
			return placed.refused, nil
		}
		if !pg.IsRetryable(err) || tries == importAttempts {
			return nil, err
		}
	}
}

// placeTx adds the units of the rows.
func (im *unitImporter) placeTx(ctx context.Context, tx pgx.Tx, rows []row[NewUnit]) (placement, error) {
	last, err := lockBlockTx(ctx, tx, im.block.TenantID, im.block.Block, len(rows))
	if err != nil {
		return placement{}, err
	}
	ids := make([]string, len(rows))
	for i := range rows {
		ids[i] = rows[i].value.UnitID
	}
	present, err := postings.Get(ctx, tx, im.block, ids)
	if err != nil {
		return placement{}, err
	}
	placed := place(rows, present, last)
	if len(placed.added) == 0 {
		return placed, nil
	}
	added, err := insertUnitsTx(ctx, tx, im.block, placed.added, placed.last, im.origin)
	if err == nil && added != int64(len(placed.added)) {
		err = fmt.Errorf("added %d of %d units: the block was changed without its lock", added, len(placed.added))
	}
	return placed, err
}

// placement is what becomes of the rows of a batch.
type placement struct {
	added     []postings.New
	unchanged int64
	refused   []refusal
	last      int64 // the last position of the block with them
}

// place gives the new units of the rows their positions. present are those that
// the block has already, last is its last position. It is pure.
func place(rows []row[NewUnit], present []postings.Unit, last int64) placement {
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
			p.added = append(p.added, postings.New{UnitID: u.UnitID, Position: at})
			positions[u.UnitID] = at
			p.last = max(p.last, at)
		}
	}
	return p
}
