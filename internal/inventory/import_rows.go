package inventory

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/internal/pg"
)

// Limits of an import.
const (
	MaxImportLine    = 64 << 10 // bytes of a line without its end
	MaxRejectedLines = 1000     // rejected lines that a report lists; the rest are only counted
	importBatchMax   = 500      // lines per transaction
)

// importAttempts is how often a batch is run if it ends with a retryable error,
// such as a deadlock with another writer.
const importAttempts = 5

// RejectedLine is a line that had no effect and why.
type RejectedLine struct {
	// Line counts from 1, header and empty lines included.
	Line int64 `json:"line"`
	// Field is the invalid field, or "line" for the line as a whole.
	Field   string `json:"field"`
	Message string `json:"message"`
}

// importBatch is what one transaction does with its rows.
type importBatch struct {
	added, unchanged int64
	refused          []refusal // rows that the rules refused
	// repeat rolls the transaction back and runs it again without the refused
	// rows, because it has done something for one of them.
	repeat bool
}

// refusal is a row that the rules refused.
type refusal struct {
	line  int64
	fault *InvalidError
}

// errRepeat rolls back a transaction of importBatch.repeat.
var errRepeat = errors.New("inventory: the import of a batch is repeated")

// importTotals are what an import has done.
type importTotals struct {
	added, unchanged, rejected int64
	lines                      []RejectedLine
}

// importer is a running import of rows of one form.
type importer[T any] struct {
	pool *pgxpool.Pool
	// writeTx writes rows in one transaction.
	writeTx func(ctx context.Context, tx pgx.Tx, rows []row[T]) (importBatch, error)
	totals  importTotals
	bad     rejections // of the current batch
}

// importRows imports the lines of r in batches, each with writeTx in one
// transaction.
func importRows[T any](ctx context.Context, pool *pgxpool.Pool, form *rowForm[T], format Format, r io.Reader, writeTx func(context.Context, pgx.Tx, []row[T]) (importBatch, error)) (importTotals, error) {
	im := importer[T]{pool: pool, writeTx: writeTx, totals: importTotals{lines: []RejectedLine{}}}
	rows, err := newRowReader(form, format, r)
	if err != nil {
		return im.totals, err
	}
	for more := true; more; {
		var good []row[T]
		im.bad = rejections{}
		good, more, err = rows.batch(ctx, &im.bad)
		if err == nil {
			err = im.bisect(ctx, good)
			im.bad.report(&im.totals)
		}
		if err != nil {
			return im.totals, fmt.Errorf("import %s: %w", form.what, err)
		}
	}
	return im.totals, nil
}

// bisect imports the rows in their order. Rows that fail on data are bisected,
// in order, until the failing row is isolated.
func (im *importer[T]) bisect(ctx context.Context, rows []row[T]) error {
	err := im.commit(ctx, rows)
	switch {
	case err == nil || !atFault(err):
		return err
	case len(rows) == 1:
		im.bad.add(rows[0].line, faultOf(err))
		return nil
	}
	half := len(rows) / 2
	if err := im.bisect(ctx, rows[:half]); err != nil {
		return err
	}
	return im.bisect(ctx, rows[half:])
}

// commit runs one transaction over the rows. Each time it starts again without
// the refused rows there are fewer rows, so it ends.
func (im *importer[T]) commit(ctx context.Context, rows []row[T]) error {
	var refused []refusal
	for tries := 1; len(rows) > 0; {
		var b importBatch
		err := pgx.BeginFunc(ctx, im.pool, func(tx pgx.Tx) (err error) {
			b, err = im.writeTx(ctx, tx, rows)
			if err == nil && b.repeat {
				err = errRepeat
			}
			return err
		})
		switch {
		case err == nil:
			im.totals.added += b.added
			im.totals.unchanged += b.unchanged
			refused = append(refused, b.refused...)
			rows = nil
		case errors.Is(err, errRepeat):
			refused = append(refused, b.refused...)
			rows = without(rows, b.refused)
		case pg.IsRetryable(err) && tries < importAttempts:
			tries++
		default:
			return err
		}
	}
	for _, r := range refused {
		im.bad.add(r.line, r.fault)
	}
	return nil
}

func without[T any](rows []row[T], refused []refusal) []row[T] {
	return slices.DeleteFunc(slices.Clone(rows), func(r row[T]) bool {
		return slices.ContainsFunc(refused, func(f refusal) bool { return f.line == r.line })
	})
}

// atFault reports whether the error is caused by a row: OnLane or the database
// refused its values.
func atFault(err error) bool {
	return errors.As(err, new(*InvalidError)) || pg.Code(err) != "" && pg.IsData(err)
}

// faultOf returns the error of a line for an error of the database or of
// OnLane.
func faultOf(err error) *InvalidError {
	if invalid, ok := errors.AsType[*InvalidError](err); ok {
		return invalid
	}
	return &InvalidError{Field: "line", Message: "was refused by the database"}
}

// rejections are those of one batch. The list is bounded however many
// unreadable lines are between its rows.
type rejections struct {
	count int64
	lines []RejectedLine
}

func (b *rejections) add(line int64, fault *InvalidError) {
	b.count++
	if len(b.lines) < MaxRejectedLines+importBatchMax {
		b.lines = append(b.lines, RejectedLine{Line: line, Field: fault.Field, Message: fault.Message})
	}
}

// report adds a batch's rejections to those of the import.
func (b *rejections) report(t *importTotals) {
	slices.SortFunc(b.lines, func(a, b RejectedLine) int { return int(a.Line - b.Line) })
	t.rejected += b.count
	t.lines = append(t.lines, b.lines[:min(len(b.lines), MaxRejectedLines-len(t.lines))]...)
}
