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
	"github.com/holdfast/holdfast/internal/telemetry"
)

// Limits of an import.
const (
	MaxImportLine    = 64 << 10 // bytes of a line without its end
	MaxRejectedLines = 1000     // rejected lines that a report lists; the rest are only counted
	importBatch      = 500      // lines a transaction
)

// Format is the form of an import.
type Format string

// The two forms an import may have. Both are UTF-8, with or without a byte order mark; a record is one line, ended by a
// line feed with or without a carriage return; empty lines are skipped but counted.
const (
	// CSV has a header with variant_id, stock and any of tracked, backorder, hold_ttl_seconds, max_per_cart and lane, in
	// any order. Cells may be quoted, but hold no line end. An empty cell leaves the field as it is, 0 clears
	// hold_ttl_seconds and max_per_cart, and booleans are true, false, 1 or 0.
	CSV Format = "csv"
	// NDJSON has one object a line, with variant_id and any of the fields above. A field left out stays as it is; null or
	// 0 clears hold_ttl_seconds and max_per_cart. Fields that are unknown or stand twice reject the line.
	NDJSON Format = "ndjson"
)

// ImportOptions are what an import's caller may add.
type ImportOptions struct {
	// OnLane, if set, is called in a batch's transaction with the last wish of each variant whose lines carry a lane,
	// sorted by variant id, before any stock is locked. If it fails with an *InvalidError or on data, the lines at fault are
	// rejected; any other error ends the import. If a line that carried a wish turns out to be rejected, the transaction
	// is rolled back and OnLane called again without it.
	OnLane func(ctx context.Context, tx pgx.Tx, tenantID uuid.UUID, wishes []LaneWish) error
}

// LaneWish is the lane that a line asks for.
type LaneWish struct {
	VariantID string
	Lane      string
}

// ImportReport is what came of an import.
type ImportReport struct {
	// Imported counts the lines whose stock is now as they say, those that changed nothing included.
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
	// Field is the field at fault, or "line" for the line as a whole.
	Field   string `json:"field"`
	Message string `json:"message"`
}

// Import sets one stock a line, as [Set] does, reading r as it goes: memory is bounded however long the input is. Lines
// take effect in their order, in transactions of 500, each change with its audit row; where a variant stands on several
// lines, each is applied to what the one before left. A line at fault is rejected and reported, the others take effect.
//
// An error ends the import: an [*InvalidError] with field "format" or "header" before anything is imported; what r
// returned, or an outage of the database, after some batches. The report then says what is known to be imported, one
// batch less if its commit was in doubt. Lines say what is to be, not what to add, so sending everything again is safe.
//
// Imports may run side by side: they lock stocks in one order.
func Import(ctx context.Context, pool *pgxpool.Pool, tenantID uuid.UUID, format Format, r io.Reader, origin audit.Origin, options ImportOptions) (_ ImportReport, err error) {
	ctx, done := telemetry.Verb(ctx, "inventory.import")
	defer func() { done(outcome(err)) }()
	im := importer{
		pool: pool, tenantID: tenantID, origin: origin, options: options,
		report: ImportReport{RejectedLines: []RejectedLine{}},
	}
	rows, err := newRowReader(format, r)
	if err != nil {
		return im.report, err
	}
	for more := true; more; {
		if more, err = im.batch(ctx, rows); err != nil {
			return im.report, fmt.Errorf("import stocks: %w", err)
		}
	}
	return im.report, nil
}

// importer is one import under way.
type importer struct {
	pool     *pgxpool.Pool
	tenantID uuid.UUID
	origin   audit.Origin
	options  ImportOptions
	report   ImportReport
}

// batch reads and imports the next lines, and says whether there are more.
func (im *importer) batch(ctx context.Context, rows *rowReader) (more bool, err error) {
	var (
		good []row
		bad  rejections
	)
	for more = true; more && len(good) < importBatch; {
		if err := ctx.Err(); err != nil {
			return false, err
		}
		r, fault, err := rows.next()
		switch {
		case err == io.EOF: //nolint:errorlint // a lost connection's error may wrap io.EOF, and is no end
			more = false
		case err != nil:
			return false, err
		case fault != nil:
			bad.add(r.line, fault)
		default:
			good = append(good, r)
		}
	}
	imported, err := im.apply(ctx, good, &bad)
	im.report.Imported += imported
	im.report.take(bad)
	return more, err
}

// take adds a batch's rejections to the report.
func (report *ImportReport) take(bad rejections) {
	slices.SortFunc(bad.lines, func(a, b RejectedLine) int { return int(a.Line - b.Line) })
	report.Rejected += bad.count
	report.RejectedLines = append(report.RejectedLines, bad.lines[:min(len(bad.lines), MaxRejectedLines-len(report.RejectedLines))]...)
}

// rejections are those of one batch: however many unreadable lines stand between its rows, the list stays short.
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
