package inventory

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/pgerr"
)

// importAttempts is how often a batch that the database asked to run again (a deadlock with some other writer) is run.
const importAttempts = 5

// apply imports the rows in their order and says how many took effect; the others are added to bad. A batch that fails
// on data is halved until the failing row stands alone; the halves keep the order.
func (im *importer) apply(ctx context.Context, rows []row, bad *rejections) (imported int64, err error) {
	if len(rows) == 0 {
		return 0, nil
	}
	refused, err := im.commit(ctx, rows)
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
	imported, err = im.apply(ctx, rows[:half], bad)
	if err != nil {
		return imported, err
	}
	more, err := im.apply(ctx, rows[half:], bad)
	return imported + more, err
}

// atFault reports whether the error is that of a row: somebody refused its values, or the database did.
func atFault(err error) bool {
	return errors.As(err, new(*InvalidError)) || pgerr.Code(err) != "" && pgerr.IsData(err)
}

// refusal is a row that the rules refused.
type refusal struct {
	line  int64
	fault *InvalidError
}

// errWishRefused rolls back a transaction that moved a variant for the sake of a row that was then refused.
var errWishRefused = errors.New("a row with a lane was refused")

// commit runs one transaction over the rows and returns those that were refused. Each time it starts over without
// refused rows there are fewer, so it ends.
func (im *importer) commit(ctx context.Context, rows []row) (all []refusal, err error) {
	for tries := 1; len(rows) > 0; {
		refused, err := im.attempt(ctx, rows)
		switch {
		case err == nil:
			return append(all, refused...), nil
		case errors.Is(err, errWishRefused):
			all = append(all, refused...)
			rows = without(rows, refused)
		case pgerr.IsRetryable(err) && tries < importAttempts:
			tries++
		default:
			return nil, err
		}
	}
	return all, nil
}

func without(rows []row, refused []refusal) []row {
	return slices.DeleteFunc(slices.Clone(rows), func(r row) bool {
		return slices.ContainsFunc(refused, func(f refusal) bool { return f.line == r.line })
	})
}

// attempt is one transaction over the rows: lanes first, because slots are locked ahead of stocks.
func (im *importer) attempt(ctx context.Context, rows []row) (refused []refusal, err error) {
	err = pgx.BeginFunc(ctx, im.pool, func(tx pgx.Tx) error {
		wishes := im.wishes(rows)
		if len(wishes) > 0 {
			if err := im.options.OnLane(ctx, tx, im.tenantID, wishes); err != nil {
				return err
			}
		}
		edits := make([]edit, len(rows))
		for i, r := range rows {
			edits[i] = r.edit
		}
		results, err := editTx(ctx, tx, im.tenantID, edits, im.origin)
		if err != nil {
			return err
		}
		moved := false
		for i, result := range results {
			if result.refused != nil {
				refused = append(refused, refusal{line: rows[i].line, fault: refusedBy(result.refused, rows[i].patch)})
				moved = moved || len(wishes) > 0 && rows[i].patch.Lane != nil
			}
		}
		if moved {
			return errWishRefused
		}
		return nil
	})
	return refused, err
}

// wishes are the last one of each variant, sorted, if anybody wants to know.
func (im *importer) wishes(rows []row) []LaneWish {
	if im.options.OnLane == nil {
		return nil
	}
	last := make(map[string]LaneWish)
	for _, r := range rows {
		if r.patch.Lane != nil {
			last[r.variantID] = LaneWish{VariantID: r.variantID, Lane: *r.patch.Lane}
		}
	}
	return slices.SortedFunc(maps.Values(last), func(a, b LaneWish) int { return cmp.Compare(a.VariantID, b.VariantID) })
}

// refusedBy puts a refusal into words, on the field that asked for it.
func refusedBy(refused error, patch StockPatch) *InvalidError {
	if errors.Is(refused, ErrStockRequired) {
		return &InvalidError{Field: "stock", Message: "is required for a new variant"}
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

// faultOf puts an error of the database or of OnLane into words.
func faultOf(err error) *InvalidError {
	if invalid, ok := errors.AsType[*InvalidError](err); ok {
		return invalid
	}
	return &InvalidError{Field: "line", Message: "was refused by the database"}
}
