package inventory

import (
	"encoding/csv"
	"encoding/json"
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
	cells, err := splitCSV(line, len(form.fields))
	if err != nil {
		return nil, &InvalidError{Field: "header", Message: err.Error()}
	}
	for i, cell := range cells {
		cells[i] = strings.Clone(strings.ToLower(strings.TrimSpace(cell)))
		if form.fields[cells[i]] == nil {
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
		if err := h.form.fields[name](&value, cell{field: name, value: cells[i]}); err != nil {
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
	cells, err := csv.NewReader(strings.NewReader(line)).Read()
	wrong, isParseError := errors.AsType[*csv.ParseError](err)
	switch {
	case isParseError && wrong.Column > len(line):
		return nil, errOpenQuote
	case err != nil:
		return nil, errStrayQuote
	case len(cells) > most:
		return nil, errTooManyCells
	}
	return cells, nil
}

// decodeJSON reads one line. It reads the object's tokens, because
// json.Unmarshal accepts a name in any case and uses the last of several equal
// names.
func (form *rowForm[T]) decodeJSON(line string) (value T, err error) {
	dec := json.NewDecoder(strings.NewReader(line))
	if token, err := dec.Token(); err != nil || token != json.Delim('{') {
		return value, errNotAnObject
	}
	seen := make(map[string]bool, len(form.fields))
	for dec.More() {
		token, err := dec.Token()
		if err != nil {
			return value, errNotAnObject
		}
		name, _ := token.(string)
		set := form.fields[name]
		if set == nil {
			return value, &InvalidError{Field: "line", Message: fmt.Sprintf("has the unknown field %q", shortened(name))}
		}
		if seen[name] {
			return value, &InvalidError{Field: name, Message: "appears twice"}
		}
		seen[name] = true
		var raw json.RawMessage
		if err := dec.Decode(&raw); err != nil {
			return value, errNotAnObject
		}
		if err := set(&value, cell{field: name, value: string(raw), isJSON: true}); err != nil {
			return value, err
		}
	}
	if _, err := dec.Token(); err != nil {
		return value, errNotAnObject
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return value, errNotAnObject
	}
	if !seen[form.id] {
		return value, &InvalidError{Field: form.id, Message: "is required"}
	}
	return value, nil
}

var errNotAnObject = &InvalidError{Field: "line", Message: "must be one JSON object"}

// cell is the value of a field: a CSV cell that is not empty, or a JSON value.
type cell struct {
	field, value string
	isJSON       bool
}

func (c cell) mustBe(kind string) error {
	return &InvalidError{Field: c.field, Message: "must be " + kind}
}

// text sets a text as it is, with the blanks of a CSV cell.
func (c cell) text(to *string) error {
	if c.isJSON {
		return decodeCell(c, "text", to)
	}
	*to = c.value
	return nil
}

// word sets a text without the blanks around a CSV cell.
func (c cell) word(to *string) error {
	if c.isJSON {
		return decodeCell(c, "text", to)
	}
	*to = strings.Clone(strings.TrimSpace(c.value))
	return nil
}

func (c cell) boolean(to **bool) error {
	*to = new(bool)
	if c.isJSON {
		return decodeCell(c, "true or false", *to)
	}
	switch strings.ToLower(strings.TrimSpace(c.value)) {
	case "true", "1":
		**to = true
	case "false", "0":
	default:
		return c.mustBe("true or false")
	}
	return nil
}

// number sets a whole number.
func number[N int32 | int64](c cell, to **N) error {
	*to = new(N)
	if c.isJSON {
		return decodeCell(c, "a whole number", *to)
	}
	n, err := strconv.ParseInt(strings.TrimSpace(c.value), 10, 64)
	if err != nil || int64(N(n)) != n {
		return c.mustBe("a whole number in range")
	}
	**to = N(n)
	return nil
}

// clearable sets a number, with null as 0.
func (c cell) clearable(to **int32) error {
	switch {
	case !c.isJSON:
		return number(c, to)
	case c.value == "null":
		*to = new(int32)
		return nil
	}
	*to = new(int32)
	return decodeCell(c, "a whole number in range, or null", *to)
}

// decodeCell decodes a JSON value that must not be null.
func decodeCell[T any](c cell, kind string, to *T) error {
	if c.value == "null" || json.Unmarshal([]byte(c.value), to) != nil {
		return c.mustBe(kind)
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
