package httpapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/holdfast/holdfast/inventory"
)

// field is one field of a JSON body and how it is read. set takes a valid JSON value, or says what is wrong with it.
type field struct {
	name     string
	required bool
	set      func(value json.RawMessage) (fault string)
}

// decodeObject reads a JSON object, whose fields stand once each, under their exact names. An empty body is an empty
// object. The error is errMalformed, or the faults of all fields.
//
// The standard decoder is not asked to fill structs: it takes a name in any case, the last of several equal ones, null
// for anything, and half a surrogate pair for a character.
func decodeObject(body []byte, fields []field) error {
	if len(bytes.TrimSpace(body)) == 0 {
		body = []byte("{}")
	}
	if !utf8.Valid(body) || !json.Valid(body) {
		return errMalformed
	}
	dec := json.NewDecoder(bytes.NewReader(body))
	if open, err := dec.Token(); err != nil || open != json.Delim('{') {
		return faults{}.with("body", "must be a JSON object")
	}
	var wrong faults
	seen := make([]bool, len(fields))
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			return errMalformed
		}
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return errMalformed
		}
		switch i := slices.IndexFunc(fields, func(f field) bool { return f.name == name }); {
		case i < 0:
			wrong = wrong.with(fmt.Sprint(name), "is not a field of this call")
		case seen[i]:
			wrong = wrong.with(fields[i].name, "stands twice")
		default:
			seen[i] = true
			if fault := fields[i].set(value); fault != "" {
				wrong = wrong.with(fields[i].name, fault)
			}
		}
	}
	for i, f := range fields {
		if f.required && !seen[i] {
			wrong = wrong.with(f.name, "is required")
		}
	}
	if len(wrong) > 0 {
		return wrong
	}
	return nil
}

// reader reads one JSON value, or says what is wrong with it.
type reader[T any] func(value json.RawMessage, to *T) (fault string)

// into reads a value that must not be null.
func into[T any](to *T, read reader[T]) func(json.RawMessage) string {
	return func(value json.RawMessage) string { return read(value, to) }
}

// optional is into for a field whose absence counts.
func optional[T any](to **T, read reader[T]) func(json.RawMessage) string {
	return func(value json.RawMessage) string {
		read1 := new(T)
		fault := read(value, read1)
		if fault == "" {
			*to = read1
		}
		return fault
	}
}

// clearable is optional for a number that null clears, which 0 stands for below.
func clearable[N int32 | int64](to **N, read reader[N]) func(json.RawMessage) string {
	return func(value json.RawMessage) string {
		if string(value) == "null" {
			*to = new(N)
			return ""
		}
		return optional(to, read)(value)
	}
}

// whole reads a number without a fraction, however it is written: 2, 2.0 and 2e0 are the same.
func whole[N int32 | int64](least, most N) reader[N] {
	return func(value json.RawMessage, to *N) string {
		n, err := strconv.ParseInt(string(value), 10, 64)
		if err != nil {
			f, err := strconv.ParseFloat(string(value), 64)
			switch {
			case err != nil && !errors.Is(err, strconv.ErrRange), f != math.Trunc(f):
				return "must be a whole number"
			case math.Abs(f) > 1<<53:
				f = math.Copysign(1<<53, f)
			}
			n = int64(f)
		}
		if n < int64(least) || n > int64(most) {
			return fmt.Sprintf("must be between %d and %d", least, most)
		}
		*to = N(n)
		return ""
	}
}

func boolean(value json.RawMessage, to *bool) string {
	switch string(value) {
	case "true":
		*to = true
	case "false":
		*to = false
	default:
		return "must be true or false"
	}
	return ""
}

// text reads a string that check accepts.
func text[S ~string](check func(string) error) reader[S] {
	return func(value json.RawMessage, to *S) string {
		var s string
		if value[0] != '"' || json.Unmarshal(value, &s) != nil {
			return "must be a string"
		}
		if hasLoneSurrogate(string(value)) {
			return "must be valid UTF-8"
		}
		if err := check(s); err != nil {
			if wrong, ok := errors.AsType[*inventory.InvalidError](err); ok {
				return wrong.Message
			}
			return err.Error()
		}
		*to = S(s)
		return ""
	}
}

// oneOf accepts the given words.
func oneOf[S ~string](words ...S) reader[S] {
	return text[S](func(s string) error {
		if slices.Contains(words, S(s)) {
			return nil
		}
		known := make([]string, len(words))
		for i, word := range words {
			known[i] = string(word)
		}
		return errors.New("must be one of " + strings.Join(known, ", "))
	})
}

// hasLoneSurrogate reports whether a JSON string writes half of a UTF-16 pair by an escape, which is no character. The
// standard decoder would make U+FFFD of it, and so one name of two.
func hasLoneSurrogate(quoted string) bool {
	for i := 0; i < len(quoted); i++ {
		if quoted[i] != '\\' {
			continue
		}
		i++ // the character after the backslash
		if quoted[i] != 'u' {
			continue
		}
		unit := escaped(quoted[i+1:])
		i += 4
		if !utf16.IsSurrogate(unit) {
			continue
		}
		if !strings.HasPrefix(quoted[i+1:], `\u`) || utf16.DecodeRune(unit, escaped(quoted[i+3:])) == utf8.RuneError {
			return true
		}
		i += 6
	}
	return false
}

// escaped is the UTF-16 unit that four hexadecimal digits say.
func escaped(digits string) rune {
	n, err := strconv.ParseUint(digits[:4], 16, 16)
	if err != nil { // valid JSON has four of them
		return 0
	}
	return rune(n)
}
