package inventory

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/lanes"
	"github.com/holdfast/holdfast/internal/pg"
)

// importAttempts is how often a batch is run if it ends with a retryable error,
// such as a deadlock with another writer.
const importAttempts = 5

// bisect imports the rows in their order and returns how many took effect; it
// adds the others to bad. commit runs one transaction over rows and returns
// those that were refused. Rows that fail on data are bisected, in order, until
// the failing row is isolated.
func bisect[T any](ctx context.Context, rows []row[T], bad *rejections, commit func(context.Context, []row[T]) ([]refusal, error)) (imported int64, err error) {
	if len(rows) == 0 {
		return 0, nil
	}
	refused, err := commit(ctx, rows)
	switch {
	case err == nil:
		for _, r := range refused {
			bad.add(r.line, r.fault)
		}
		return int64(len(rows) - len(refused)), nil
	case !atFault(err):
		return 0, err
	case len(rows) == 1:
		bad.add(rows[0].line, faultOf(err))
		return 0, nil
	}
	half := len(rows) / 2
	imported, err = bisect(ctx, rows[:half], bad, commit)
	if err != nil {
		return imported, err
	}
	more, err := bisect(ctx, rows[half:], bad, commit)
	return imported + more, err
}

// atFault reports whether the error is caused by a row: OnLane or the database
// refused its values.
func atFault(err error) bool {
	return errors.As(err, new(*InvalidError)) || pg.Code(err) != "" && pg.IsData(err)
}

// refusal is a row that the rules refused.
type refusal struct {
	line  int64
	fault *InvalidError
}

// errWishRefused rolls back a transaction that moved a variant to the lane of a
// row that was then refused.
var errWishRefused = errors.New("a row with a lane was refused")

// commit runs one transaction over the rows and returns those that were
// refused. Each time it starts again without the refused rows there are fewer
// rows, so it ends.
func (im *importer) commit(ctx context.Context, rows []row[edit]) (all []refusal, err error) {
	for tries := 1; len(rows) > 0; {
		refused, err := im.attempt(ctx, rows)
		switch {
		case err == nil:
			return append(all, refused...), nil
		case errors.Is(err, errWishRefused):
			all = append(all, refused...)
			rows = without(rows, refused)
		case pg.IsRetryable(err) && tries < importAttempts:
			tries++
		default:
			return nil, err
		}
	}
	return all, nil
}

func without(rows []row[edit], refused []refusal) []row[edit] {
	return slices.DeleteFunc(slices.Clone(rows), func(r row[edit]) bool {
		return slices.ContainsFunc(refused, func(f refusal) bool { return f.line == r.line })
	})
}

// attempt is one transaction over the rows: lanes first, because slots are
// locked before stocks.
func (im *importer) attempt(ctx context.Context, rows []row[edit]) (refused []refusal, err error) {
	err = pgx.BeginFunc(ctx, im.pool, func(tx pgx.Tx) error {
		wishes := im.wishes(rows)
		if len(wishes) > 0 {
			if err := im.options.OnLane(ctx, tx, im.tenantID, wishes); err != nil {
				return err
			}
		}
		edits := make([]edit, len(rows))
		for i, r := range rows {
			edits[i] = r.value
		}
		results, err := editTx(ctx, tx, im.tenantID, edits, im.origin)
		if err != nil {
			return err
		}
		moved := false
		for i, result := range results {
			if result.refused != nil {
				refused = append(refused, refusal{line: rows[i].line, fault: refusedBy(result.refused, rows[i].value.patch)})
				moved = moved || len(wishes) > 0 && rows[i].value.patch.Lane != nil
			}
		}
		if moved {
			return errWishRefused
		}
		return nil
	})
	return refused, err
}

// wishes returns the last lane of each variant, sorted, or nothing without an
// OnLane.
func (im *importer) wishes(rows []row[edit]) []lanes.Placement {
	if im.options.OnLane == nil {
		return nil
	}
	last := make(map[string]lanes.Placement)
	for _, r := range rows {
		if r.value.patch.Lane != nil {
			last[r.value.variantID] = lanes.Placement{VariantID: r.value.variantID, Wish: *r.value.patch.Lane}
		}
	}
	return slices.SortedFunc(maps.Values(last), func(a, b lanes.Placement) int { return cmp.Compare(a.VariantID, b.VariantID) })
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

// faultOf returns the error of a line for an error of the database or of
// OnLane.
func faultOf(err error) *InvalidError {
	if invalid, ok := errors.AsType[*InvalidError](err); ok {
		return invalid
	}
	return &InvalidError{Field: "line", Message: "was refused by the database"}
}
