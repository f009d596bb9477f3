package inventory

import (
	"context"
	"errors"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/lanes"
	"github.com/holdfast/holdfast/internal/telemetry"
)

// ImportOptions are the options of an import.
type ImportOptions struct {
	// OnLane, if set, is called in a batch's transaction, before any stock is
	// locked, with the last lane of each variant whose lines have one, sorted
	// by variant id. If it fails with an *InvalidError or on data, the lines
	// that cause the error are rejected; any other error ends the import. If a
	// line with a lane is rejected later, the transaction is rolled back and
	// OnLane is called again without it.
	OnLane func(ctx context.Context, tx pgx.Tx, tenantID uuid.UUID, wishes []lanes.Placement) error
}

// ImportReport is the result of an import.
type ImportReport struct {
	// Imported counts the lines that took effect, including those that changed
	// nothing.
	Imported int64 `json:"imported"`
	// Rejected counts the lines that had no effect.
	Rejected int64 `json:"rejected"`
	// RejectedLines are the first MaxRejectedLines of them, in order.
	RejectedLines []RejectedLine `json:"rejected_lines"`
}

// stockForm is how an import of stocks is read.
var stockForm = rowForm[edit]{
	what:     "stocks",
	id:       "variant_id",
	required: []string{"variant_id", "stock"},
	fields: map[string]func(e *edit, c cell) error{
		"variant_id":       func(e *edit, c cell) error { return c.text(&e.variantID) },
		"stock":            func(e *edit, c cell) error { return number(c, &e.patch.Stock) },
		"tracked":          func(e *edit, c cell) error { return c.boolean(&e.patch.Tracked) },
		"backorder":        func(e *edit, c cell) error { return c.boolean(&e.patch.Backorder) },
		"hold_ttl_seconds": func(e *edit, c cell) error { return c.clearable(&e.patch.HoldTTLSeconds) },
		"max_per_cart":     func(e *edit, c cell) error { return c.clearable(&e.patch.MaxPerCart) },
		"lane": func(e *edit, c cell) error {
			e.patch.Lane = new(lanes.Wish)
			return c.word((*string)(e.patch.Lane))
		},
	},
	check: func(e *edit) error {
		e.variantID = strings.Clone(e.variantID)
		if err := ValidateID("variant_id", e.variantID); err != nil {
			return err
		}
		return e.patch.Validate()
	},
}

// Import sets one stock per line, as [Set] does. It reads r as a stream, so
// memory is bounded however long the input is. Lines take effect in their
// order, in transactions of 500, each change with its audit row. If several
// lines have the same variant, each is applied to the result of the one before.
// An invalid line is rejected and reported, and the others take effect.
//
// An error ends the import: an [*InvalidError] with field "format" or "header"
// before anything is imported; the error of r, or an outage of the database,
// after some batches. The report then has what is known to be imported; if the
// outcome of a commit is unknown, its batch is not counted. Lines set values
// and do not add to them, so sending the whole input again is safe.
//
// Imports may run at the same time: they lock stocks in one order.
func Import(ctx context.Context, pool *pgxpool.Pool, tenantID uuid.UUID, format Format, r io.Reader, origin audit.Origin, options ImportOptions) (_ ImportReport, err error) {
	ctx, done := telemetry.Verb(ctx, "inventory.import")
	defer func() { done(outcome(err)) }()
	t, err := importRows(ctx, pool, &stockForm, format, r, func(ctx context.Context, tx pgx.Tx, rows []row[edit]) (importBatch, error) {
		return importStocksTx(ctx, tx, tenantID, rows, origin, options)
	})
	return ImportReport{Imported: t.added, Rejected: t.rejected, RejectedLines: t.lines}, err
}

// importStocksTx sets the stocks of the rows: lanes first, because slots are
// locked before stocks.
func importStocksTx(ctx context.Context, tx pgx.Tx, tenantID uuid.UUID, rows []row[edit], origin audit.Origin, options ImportOptions) (b importBatch, err error) {
	var wishes []lanes.Placement
	if options.OnLane != nil {
		wishes = lastWishes(rows)
	}
	if len(wishes) > 0 {
		if err := options.OnLane(ctx, tx, tenantID, wishes); err != nil {
			return b, err
		}
	}
	edits := make([]edit, len(rows))
	for i, r := range rows {
		edits[i] = r.value
	}
	results, err := editTx(ctx, tx, tenantID, edits, false, origin)
	if err != nil {
		return b, err
	}
	for i, result := range results {
		if result.refused == nil {
			b.added++
			continue
		}
		b.refused = append(b.refused, refusal{line: rows[i].line, fault: refusedBy(result.refused, rows[i].value.patch)})
		b.repeat = b.repeat || len(wishes) > 0 && rows[i].value.patch.Lane != nil
	}
	return b, nil
}

// lastWishes returns the last lane of each variant, sorted.
func lastWishes(rows []row[edit]) []lanes.Placement {
	last := make(map[string]lanes.Wish)
	for _, r := range rows {
		if r.value.patch.Lane != nil {
			last[r.value.variantID] = *r.value.patch.Lane
		}
	}
	wishes := make([]lanes.Placement, 0, len(last))
	for _, id := range slices.Sorted(maps.Keys(last)) {
		wishes = append(wishes, lanes.Placement{VariantID: id, Wish: last[id]})
	}
	return wishes
}

// refusedBy returns the error for a refused patch, on the field that caused it.
func refusedBy(refused error, patch StockPatch) *InvalidError {
	if errors.Is(refused, ErrStockRequired) {
		return &InvalidError{Field: "stock", Message: "is required for a new variant"}
	}
	if invalid, ok := errors.AsType[*InvalidError](refused); ok {
		return invalid
	}
	field := "tracked"
	switch {
	case patch.Stock != nil:
		field = "stock"
	case patch.Backorder != nil && !*patch.Backorder:
		field = "backorder"
	}
	return &InvalidError{Field: field, Message: "would leave fewer units than are reserved"}
}
