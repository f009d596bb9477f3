package inventory

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

var errNotAnObject = &InvalidError{Field: "line", Message: "must be one JSON object"}

// decodeJSON reads one line. It reads the object's tokens, because
// json.Unmarshal accepts a name in any case and uses the last of several equal
// names.
func (form *rowForm[T]) decodeJSON(line string) (value T, err error) {
	dec := json.NewDecoder(strings.NewReader(line))
	if token, err := dec.Token(); err != nil || token != json.Delim('{') {
		return value, errNotAnObject
	}
	seen := make(map[string]bool, len(form.json))
	for dec.More() {
		token, err := dec.Token()
		if err != nil {
			return value, errNotAnObject
		}
		name, _ := token.(string)
		set := form.json[name]
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
		if err := set(&value, raw); err != nil {
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

// jsonText decodes a string.
func jsonText(field string, raw json.RawMessage, to *string) error {
	var text *string
	err := jsonValue(field, "text", raw, &text)
	if err == nil {
		*to = *text
	}
	return err
}

// jsonValue decodes a value that must not be null.
func jsonValue[T any](field, kind string, value json.RawMessage, to **T) error {
	if json.Unmarshal(value, to) != nil || *to == nil {
		return &InvalidError{Field: field, Message: "must be " + kind}
	}
	return nil
}

// jsonClearable decodes a number, with null as 0.
func jsonClearable(field string, value json.RawMessage, to **int32) error {
	if bytes.Equal(value, []byte("null")) {
		*to = new(int32)
		return nil
	}
	return jsonValue(field, "a whole number in range, or null", value, to)
}
