package inventory

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// csvHeader has the names of the columns in their order.
type csvHeader[T any] struct {
	form  *rowForm[T]
	names []string
}

// readHeader reads the first line that is not empty.
func readHeader[T any](lines *lineReader, form *rowForm[T]) (*csvHeader[T], error) {
	for {
		line, err := lines.next()
		if err == io.EOF { //nolint:errorlint // an error that wraps io.EOF is not the end
			return nil, &InvalidError{Field: "header", Message: "is missing"}
		}
		if fault, ok := errors.AsType[*InvalidError](err); ok {
			return nil, &InvalidError{Field: "header", Message: fault.Message}
		}
		if err != nil {
			return nil, err
		}
		if line != "" {
			return parseHeader(line, form)
		}
	}
}

func parseHeader[T any](line string, form *rowForm[T]) (*csvHeader[T], error) {
	cells, err := splitCSV(line, len(form.csv))
	if err != nil {
		return nil, &InvalidError{Field: "header", Message: err.Error()}
	}
	for i, cell := range cells {
		cells[i] = strings.Clone(strings.ToLower(strings.TrimSpace(cell)))
		if form.csv[cells[i]] == nil {
			return nil, &InvalidError{Field: "header", Message: fmt.Sprintf("has the unknown column %q", shortened(cells[i]))}
		}
		if slices.Contains(cells[:i], cells[i]) {
			return nil, &InvalidError{Field: "header", Message: fmt.Sprintf("has the column %s twice", cells[i])}
		}
	}
	for _, required := range form.required {
		if !slices.Contains(cells, required) {
			return nil, &InvalidError{Field: "header", Message: "lacks the column " + required}
		}
	}
	return &csvHeader[T]{form, cells}, nil
}

// decode reads one line under the header.
func (h *csvHeader[T]) decode(line string) (value T, err error) {
	cells, err := splitCSV(line, len(h.names))
	if err != nil {
		return value, &InvalidError{Field: "line", Message: err.Error()}
	}
	if len(cells) != len(h.names) {
		return value, &InvalidError{Field: "line", Message: fmt.Sprintf("must have %d cells, as the header has", len(h.names))}
	}
	for i, name := range h.names {
		if name != h.form.id && strings.TrimSpace(cells[i]) == "" {
			continue
		}
		if err := h.form.csv[name](&value, cells[i]); err != nil {
			return value, err
		}
	}
	return value, nil
}

var (
	errTooManyCells = errors.New("has too many cells")
	errOpenQuote    = errors.New("has a quote that is not closed before the line ends")
	errStrayQuote   = errors.New("has a quote inside a cell; quote the whole cell and double the quote")
)

// splitCSV splits one line into at most the given number of cells by the rules
// of RFC 4180, except that quotes may not contain line ends: an unclosed quote
// must not consume the rest of the input.
func splitCSV(line string, most int) ([]string, error) {
	var cells []string
	for {
		if len(cells) == most {
			return nil, errTooManyCells
		}
		var cell string
		var err error
		cell, line, err = cutCell(line)
		if err != nil {
			return nil, err
		}
		cells = append(cells, cell)
		if line == "" {
			return cells, nil
		}
		line = line[1:]
	}
}

// cutCell returns the first cell and the rest, which is empty or begins with
// the comma.
func cutCell(line string) (cell, rest string, err error) {
	if !strings.HasPrefix(line, `"`) {
		end := strings.IndexByte(line, ',')
		if end < 0 {
			end = len(line)
		}
		if strings.Contains(line[:end], `"`) {
			return "", "", errStrayQuote
		}
		return line[:end], line[end:], nil
	}
	var quoted strings.Builder
	for line = line[1:]; ; {
		end := strings.IndexByte(line, '"')
		if end < 0 {
			return "", "", errOpenQuote
		}
		quoted.WriteString(line[:end])
		line = line[end+1:]
		switch {
		case line == "" || line[0] == ',':
			return quoted.String(), line, nil
		case line[0] != '"':
			return "", "", errStrayQuote
		}
		quoted.WriteByte('"')
		line = line[1:]
	}
}

func csvNumber[N int32 | int64](field, cell string, to **N) error {
	n, err := strconv.ParseInt(strings.TrimSpace(cell), 10, 64)
	if err != nil || int64(N(n)) != n {
		return &InvalidError{Field: field, Message: "must be a whole number in range"}
	}
	*to = new(N(n))
	return nil
}

func csvBool(field, cell string, to **bool) error {
	switch strings.ToLower(strings.TrimSpace(cell)) {
	case "true", "1":
		*to = new(true)
	case "false", "0":
		*to = new(false)
	default:
		return &InvalidError{Field: field, Message: "must be true or false"}
	}
	return nil
}

// shortened bounds a caller's text in an error.
func shortened(s string) string {
	if r := []rune(s); len(r) > 40 {
		return string(r[:40]) + "…"
	}
	return s
}
