package inventory

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// row is a line that could be read: what it asks for, in range.
type row struct {
	line int64
	edit
}

// rowReader reads rows from lines of at most MaxImportLine bytes and keeps no more than one line in memory.
type rowReader struct {
	lines  *lineReader
	decode func(line string) (edit, error)
}

// newRowReader reads what stands before the first row.
func newRowReader(format Format, r io.Reader) (*rowReader, error) {
	lines := newLineReader(r)
	switch format {
	case NDJSON:
		return &rowReader{lines: lines, decode: decodeJSON}, nil
	case CSV:
		header, err := readHeader(lines)
		if err != nil {
			return nil, err
		}
		return &rowReader{lines: lines, decode: header.decode}, nil
	}
	return nil, &InvalidError{Field: "format", Message: "must be csv or ndjson"}
}

// next returns the next row, or the fault of a line that is none. It returns io.EOF after the last, or what the reader
// returned.
func (rr *rowReader) next() (row, *InvalidError, error) {
	for {
		line, err := rr.lines.next()
		at := row{line: rr.lines.number}
		if fault, ok := errors.AsType[*InvalidError](err); ok {
			return at, fault, nil
		}
		if err != nil {
			return at, nil, err
		}
		if line == "" {
			continue
		}
		at.edit, err = rr.decode(line)
		if err == nil {
			err = ValidateID("variant_id", at.variantID)
		}
		if err == nil {
			err = at.patch.Validate()
		}
		if fault, ok := errors.AsType[*InvalidError](err); ok {
			return at, fault, nil
		}
		// Only the row is kept, not the line it was cut from.
		at.variantID = strings.Clone(at.variantID)
		return at, nil, err
	}
}

// lineReader cuts the input into lines.
type lineReader struct {
	r      *bufio.Reader
	number int64 // of the line last returned
}

func newLineReader(r io.Reader) *lineReader {
	return &lineReader{r: bufio.NewReaderSize(r, MaxImportLine+len("\r\n"))}
}

// next returns the next line without its end. The error is an *InvalidError for a line that is too long or not UTF-8,
// after which the next one can be read; io.EOF after the last; or the reader's.
func (l *lineReader) next() (string, error) {
	line, err := l.r.ReadSlice('\n')
	tooLong := false
	for errors.Is(err, bufio.ErrBufferFull) {
		tooLong = true
		line, err = l.r.ReadSlice('\n')
	}
	if err != nil && err != io.EOF { // one that only wraps io.EOF is not the end
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
