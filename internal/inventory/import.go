package inventory

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/lanes"
	"github.com/holdfast/holdfast/internal/telemetry"
)

// Limits of an import.
const (
	MaxImportLine    = 64 << 10 // bytes of a line without its end
	MaxRejectedLines = 1000     // rejected lines that a report lists; the rest are only counted
	importBatch      = 500      // lines per transaction
)

// Format is the form of an import.
type Format string

// The two forms an import may have. Both are UTF-8, with or without a byte
// order mark; a record is one line, ended by a line feed with or without a
// carriage return; empty lines are skipped but counted.
const (
	// CSV has a header with variant_id, stock and any of tracked, backorder,
	// hold_ttl_seconds, max_per_cart and lane, in any order. Cells may be
	// quoted, but hold no line end. An empty cell leaves the field as it is, 0
	// clears hold_ttl_seconds and max_per_cart, and booleans are true, false, 1
	// or 0.
	CSV Format = "csv"
	// NDJSON has one object per line, with variant_id and any of the fields
	// above. A field left out stays as it is; null or 0 clears hold_ttl_seconds
	// and max_per_cart. A line with an unknown or a repeated field is rejected.
	NDJSON Format = "ndjson"
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

// RejectedLine is a line that had no effect and why.
type RejectedLine struct {
	// Line counts from 1, header and empty lines included.
	Line int64 `json:"line"`
	// Field is the invalid field, or "line" for the line as a whole.
	Field   string `json:"field"`
	Message string `json:"message"`
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
	im := importer{
		pool: pool, tenantID: tenantID, origin: origin, options: options,
		report: ImportReport{RejectedLines: []RejectedLine{}},
	}
	rows, err := newRowReader(&stockForm, format, r)
	if err != nil {
		return im.report, err
	}
	for more := true; more; {
		more, err = im.batch(ctx, rows)
		if err != nil {
			return im.report, fmt.Errorf("import stocks: %w", err)
		}
	}
	return im.report, nil
}

// importer is a running import.
type importer struct {
	pool     *pgxpool.Pool
	tenantID uuid.UUID
	origin   audit.Origin
	options  ImportOptions
	report   ImportReport
}

// batch reads and imports the next lines, and reports whether there are more.
func (im *importer) batch(ctx context.Context, rows *rowReader[edit]) (more bool, err error) {
	var bad rejections
	good, more, err := rows.batch(ctx, &bad)
	if err != nil {
		return false, err
	}
	imported, err := bisect(ctx, good, &bad, im.commit)
	im.report.Imported += imported
	bad.report(&im.report.Rejected, &im.report.RejectedLines)
	return more, err
}

// rejections are those of one batch. The list is bounded however many
// unreadable lines are between its rows.
type rejections struct {
	count int64
	lines []RejectedLine
}

func (b *rejections) add(line int64, fault *InvalidError) {
	b.count++
	if len(b.lines) < MaxRejectedLines+importBatch {
		b.lines = append(b.lines, RejectedLine{Line: line, Field: fault.Field, Message: fault.Message})
	}
}

// report adds a batch's rejections to those of a report.
func (b *rejections) report(count *int64, lines *[]RejectedLine) {
	slices.SortFunc(b.lines, func(a, b RejectedLine) int { return int(a.Line - b.Line) })
	*count += b.count
	*lines = append(*lines, b.lines[:min(len(b.lines), MaxRejectedLines-len(*lines))]...)
}
