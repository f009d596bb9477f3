package inventory

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"
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

// rowForm is how the lines of one kind of import are read.
type rowForm[T any] struct {
	what string // is imported, in the plural
	// id is the field that each line must have; in CSV its cell may hold blanks.
	// required are the columns that a CSV header must have.
	id       string
	required []string
	// fields are those that a line may have, with the functions that set them.
	fields map[string]func(value *T, c cell) error
	// check validates the value, and makes it independent of the line that it
	// was read from. Its error is an *InvalidError.
	check func(value *T) error
}

// row is a valid line.
type row[T any] struct {
	line  int64
	value T
}

// rowReader reads rows from lines of at most MaxImportLine bytes and keeps no
// more than one line in memory.
type rowReader[T any] struct {
	lines  *lineReader
	decode func(line string) (T, error)
	check  func(*T) error
}

// newRowReader reads what precedes the first row.
func newRowReader[T any](form *rowForm[T], format Format, r io.Reader) (*rowReader[T], error) {
	rr := &rowReader[T]{lines: newLineReader(r), decode: form.decodeJSON, check: form.check}
	switch format {
	case NDJSON:
		return rr, nil
	case CSV:
		header, err := readHeader(rr.lines, form)
		if err != nil {
			return nil, err
		}
		rr.decode = header.decode
		return rr, nil
	}
	return nil, &InvalidError{Field: "format", Message: "must be csv or ndjson"}
}

// next returns the next row, or the error of an invalid line. After the last
// row it returns io.EOF; otherwise the reader's error.
func (rr *rowReader[T]) next() (row[T], *InvalidError, error) {
	for {
		line, err := rr.lines.next()
		at := row[T]{line: rr.lines.number}
		if fault, ok := errors.AsType[*InvalidError](err); ok {
			return at, fault, nil
		}
		if err != nil {
			return at, nil, err
		}
		if line == "" {
			continue
		}
		at.value, err = rr.decode(line)
		if err == nil {
			err = rr.check(&at.value)
		}
		if fault, ok := errors.AsType[*InvalidError](err); ok {
			return at, fault, nil
		}
		return at, nil, err
	}
}

// batch returns the next rows, at most importBatchMax, and reports whether there
// are more. It adds the invalid lines between them to bad.
func (rr *rowReader[T]) batch(ctx context.Context, bad *rejections) (rows []row[T], more bool, err error) {
	for more = true; more && len(rows) < importBatchMax; {
		if err := ctx.Err(); err != nil {
			return nil, false, err
		}
		r, fault, err := rr.next()
		switch {
		case err == io.EOF: //nolint:errorlint // the error of a lost connection may wrap io.EOF, and is not the end
			more = false
		case err != nil:
			return nil, false, err
		case fault != nil:
			bad.add(r.line, fault)
		default:
			rows = append(rows, r)
		}
	}
	return rows, more, nil
}

// lineReader splits the input into lines.
type lineReader struct {
	r      *bufio.Reader
	number int64 // of the line last returned
}

func newLineReader(r io.Reader) *lineReader {
	return &lineReader{r: bufio.NewReaderSize(r, MaxImportLine+len("\r\n"))}
}

// next returns the next line without its end. The error is an *InvalidError for
// a line that is too long or not UTF-8, after which the next one can be read;
// io.EOF after the last line; or the reader's.
func (l *lineReader) next() (string, error) {
	line, err := l.r.ReadSlice('\n')
	tooLong := false
	for errors.Is(err, bufio.ErrBufferFull) {
		tooLong = true
		line, err = l.r.ReadSlice('\n')
	}
	if err != nil && err != io.EOF { // an error that only wraps io.EOF is not the end
		return "", fmt.Errorf("read line %d: %w", l.number+1, err)
	}
	if len(line) == 0 && !tooLong {
		return "", io.EOF
	}
	l.number++
	line = bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r"))
	if l.number == 1 {
		line = bytes.TrimPrefix(line, []byte("\xef\xbb\xbf"))
	}
	if tooLong || len(line) > MaxImportLine {
		return "", &InvalidError{Field: "line", Message: fmt.Sprintf("must be at most %d bytes", MaxImportLine)}
	}
	if !utf8.Valid(line) {
		return "", &InvalidError{Field: "line", Message: "must be valid UTF-8"}
	}
	return string(line), nil
}
