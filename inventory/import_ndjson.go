package inventory

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// jsonFields are the fields an NDJSON line may have, and how their value gets into the edit.
var jsonFields = map[string]func(e *edit, value json.RawMessage) error{
	"variant_id": func(e *edit, v json.RawMessage) error {
		var id *string
		err := jsonValue("variant_id", "text", v, &id)
		if err == nil {
			e.variantID = *id
		}
		return err
	},
	"stock": func(e *edit, v json.RawMessage) error { return jsonValue("stock", "a whole number", v, &e.patch.Stock) },
	"tracked": func(e *edit, v json.RawMessage) error {
		return jsonValue("tracked", "true or false", v, &e.patch.Tracked)
	},
	"backorder": func(e *edit, v json.RawMessage) error {
		return jsonValue("backorder", "true or false", v, &e.patch.Backorder)
	},
	"hold_ttl_seconds": func(e *edit, v json.RawMessage) error {
		return jsonClearable("hold_ttl_seconds", v, &e.patch.HoldTTLSeconds)
	},
	"max_per_cart": func(e *edit, v json.RawMessage) error { return jsonClearable("max_per_cart", v, &e.patch.MaxPerCart) },
	"lane":         func(e *edit, v json.RawMessage) error { return jsonValue("lane", "text", v, &e.patch.Lane) },
}

var errNotAnObject = &InvalidError{Field: "line", Message: "must be one JSON object"}

// decodeJSON reads one line. It goes through the object's tokens itself, because the standard decoder takes a name in
// any case and the last of several equal ones.
func decodeJSON(line string) (edit, error) {
	dec := json.NewDecoder(strings.NewReader(line))
	if token, err := dec.Token(); err != nil || token != json.Delim('{') {
		return edit{}, errNotAnObject
	}
	var e edit
	seen := make(map[string]bool, len(jsonFields))
	for dec.More() {
		token, err := dec.Token()
		if err != nil {
			return edit{}, errNotAnObject
		}
		name, _ := token.(string)
		set := jsonFields[name]
		if set == nil {
			return edit{}, &InvalidError{Field: "line", Message: fmt.Sprintf("has the unknown field %q", shortened(name))}
		}
		if seen[name] {
			return edit{}, &InvalidError{Field: name, Message: "stands twice"}
		}
		seen[name] = true
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return edit{}, errNotAnObject
		}
		if err := set(&e, value); err != nil {
			return edit{}, err
		}
	}
	if _, err := dec.Token(); err != nil {
		return edit{}, errNotAnObject
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return edit{}, errNotAnObject
	}
	if !seen["variant_id"] {
		return edit{}, &InvalidError{Field: "variant_id", Message: "is required"}
	}
	return e, nil
}

// jsonValue decodes a value that must not be null.
func jsonValue[T any](field, kind string, value json.RawMessage, to **T) error {
	if json.Unmarshal(value, to) != nil || *to == nil {
		return &InvalidError{Field: field, Message: "must be " + kind}
	}
	return nil
}

// jsonClearable decodes a number for which null means the same as 0.
func jsonClearable(field string, value json.RawMessage, to **int32) error {
	if bytes.Equal(value, []byte("null")) {
		*to = new(int32)
		return nil
	}
	return jsonValue(field, "a whole number in range, or null", value, to)
}
