package httpapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"

	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/internal/requestrows"
)

// field is one field of a JSON body.
type field struct {
	name     string
	required bool
	value
}

// value is how a field's values are read and documented, from one statement of
// their limits. set takes a valid JSON value and returns what is wrong with it,
// "" for nothing. describe adds the limits to the schema of the field's type;
// it may be nil.
type value struct {
	set      func(value json.RawMessage) (message string)
	describe func(*huma.Schema)
}

// decodeObject reads a JSON object that has each field once at most, under its
// exact name. An empty body is an empty object.
//
// encoding/json does not fill the struct, because it accepts a name in any
// case, the last of several equal names, null for any value, and half a
// surrogate pair as a character.
//
// Errors: errMalformed, or the fieldErrors of all fields.
func decodeObject(body []byte, to payload) error {
	_, err := decodeFields(body, to)
	return err
}

// decodeFields is decodeObject, and returns the names of the fields that the
// object has.
func decodeFields(body []byte, to payload) (given []string, _ error) {
	if len(bytes.TrimSpace(body)) == 0 {
		body = []byte("{}")
	}
	if !utf8.Valid(body) || !json.Valid(body) {
		return nil, errMalformed
	}
	body = bytes.TrimLeft(body, jsonSpace)
	if body[0] != '{' {
		return nil, fieldErrors{}.with("body", "must be a JSON object")
	}
	var wrong fieldErrors
	fields := to.fields()
	plain := len(fields) // those of the first form
	other, hasOther := to.(otherForm)
	seen := make([]bool, plain)
	for name, value := range members(body) {
		i := slices.IndexFunc(fields, func(f field) bool { return f.name == name })
		if i < 0 && hasOther && len(fields) == plain {
			fields = append(fields, other.otherFields()...)
			seen = slices.Concat(seen, make([]bool, len(fields)-plain))
			i = slices.IndexFunc(fields, func(f field) bool { return f.name == name })
		}
		switch {
		case i < 0:
			wrong = wrong.with(name, "is not a field of this call")
		case seen[i]:
			wrong = wrong.with(fields[i].name, sentTwice)
		default:
			seen[i] = true
			if message := fields[i].set(value); message != "" {
				wrong = wrong.with(fields[i].name, message)
			}
		}
	}
	given = namesOf(fields, seen)
	if slices.Contains(seen[plain:], true) {
		wrong = other.checkOther(given, wrong)
	} else {
		for i, f := range fields[:plain] {
			if f.required && !seen[i] {
				wrong = wrong.with(f.name, "is required")
			}
		}
	}
	if len(wrong) > 0 {
		return given, wrong
	}
	return given, nil
}

// jsonSpace is the white space of JSON.
const jsonSpace = " \t\r\n"

// members returns the names and the values of a valid JSON object, in its order.
func members(object []byte) iter.Seq2[string, json.RawMessage] {
	return func(yield func(string, json.RawMessage) bool) {
		for rest := bytes.TrimLeft(object[1:], jsonSpace); rest[0] == '"'; {
			end := valueEnd(rest)
			name := unquoted(rest[:end])
			_, rest, _ = bytes.Cut(rest[end:], []byte(":"))
			rest = bytes.TrimLeft(rest, jsonSpace)
			end = valueEnd(rest)
			if !yield(name, rest[:end:end]) {
				return
			}
			rest = bytes.TrimLeft(rest[end:], jsonSpace+",")
		}
	}
}

// valueEnd returns the length of the value that the text of a valid JSON object
// continues with.
func valueEnd(text []byte) int {
	depth := 0
	for i := 0; ; i++ {
		switch text[i] {
		case '"':
			for i++; text[i] != '"'; i++ {
				if text[i] == '\\' {
					i++
				}
			}
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		default: // in a list or an object, or a number, true, false or null
			if depth == 0 {
				return bytes.IndexAny(text, jsonSpace+",}")
			}
		}
		if depth == 0 {
			return i + 1
		}
	}
}

// unquoted returns the text of a valid JSON string.
func unquoted(quoted []byte) (text string) {
	if bytes.IndexByte(quoted, '\\') < 0 {
		return string(quoted[1 : len(quoted)-1])
	}
	if err := json.Unmarshal(quoted, &text); err != nil {
		panic("httpapi: a JSON string was not validated: " + err.Error())
	}
	return text
}

// namesOf returns the names of the fields that were seen.
func namesOf(fields []field, seen []bool) (names []string) {
	for i, f := range fields {
		if seen[i] {
			names = append(names, f.name)
		}
	}
	return names
}

// reader reads one JSON value and returns what is wrong with it, "" for
// nothing. describe is that of value.
type reader[T any] struct {
	read     func(value json.RawMessage, to *T) (message string)
	describe func(*huma.Schema)
}

// into reads a value that must not be null.
func into[T any](to *T, r reader[T]) value {
	return value{func(value json.RawMessage) string { return r.read(value, to) }, r.describe}
}

// optional is into for a field whose absence counts.
func optional[T any](to **T, r reader[T]) value {
	set := func(value json.RawMessage) string {
		got := new(T)
		message := r.read(value, got)
		if message == "" {
			*to = got
		}
		return message
	}
	return value{set, r.describe}
}

// clearable is optional for a number that null clears. The packages below take
// 0 for that.
func clearable[T any](to **T, r reader[T]) value {
	given := optional(to, r)
	set := func(value json.RawMessage) string {
		if string(value) == "null" {
			*to = new(T)
			return ""
		}
		return given.set(value)
	}
	describe := func(s *huma.Schema) {
		r.describe(s)
		s.Nullable = true
	}
	return value{set, describe}
}

// instant reads a time of RFC 3339, which null clears. The packages below take
// the zero time for that.
func instant(to **time.Time) value {
	set := func(value json.RawMessage) string {
		if string(value) == "null" {
			*to = new(time.Time)
			return ""
		}
		at, err := time.Parse(time.RFC3339, strings.Trim(string(value), `"`))
		if err != nil || value[0] != '"' || at.UTC().Year() < 1970 || at.UTC().Year() > 9999 {
			return "must be a time of RFC 3339, of the years 1970 to 9999"
		}
		*to = &at
		return ""
	}
	return value{set, func(s *huma.Schema) { s.Nullable = true }}
}

// whole reads a number without a fraction, however it is written: 2, 2.0 and
// 2e0 are the same.
func whole[N int32 | int64](least, most N) reader[N] {
	read := func(value json.RawMessage, to *N) string {
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
	return reader[N]{read, func(s *huma.Schema) { limitNumber(s, int64(least), int64(most)) }}
}

// limitNumber adds the limits of a number to its schema.
func limitNumber(s *huma.Schema, least, most int64) {
	s.Minimum = new(float64(least))
	s.Maximum = new(float64(most))
}

// boolean reads true or false.
func boolean() reader[bool] {
	return reader[bool]{read: func(value json.RawMessage, to *bool) string {
		switch string(value) {
		case "true":
			*to = true
		case "false":
			*to = false
		default:
			return "must be true or false"
		}
		return ""
	}}
}

// texts reads a list of 1 to most strings, which the caller checks.
func texts(most int) reader[[]string] {
	read := func(value json.RawMessage, to *[]string) string {
		var list []*string
		switch {
		case value[0] != '[' || json.Unmarshal(value, &list) != nil || slices.Contains(list, nil):
			return "must be a list of strings"
		case hasLoneSurrogate(value):
			return "must be valid UTF-8"
		case len(list) == 0 || len(list) > most:
			return fmt.Sprintf("must have 1 to %d items", most)
		}
		*to = make([]string, len(list))
		for i, s := range list {
			(*to)[i] = *s
		}
		return ""
	}
	return reader[[]string]{read, func(s *huma.Schema) {
		s.MinItems, s.MaxItems, s.UniqueItems = new(1), &most, true
		least, longest := 1, inventory.MaxIDLength
		s.Items = &huma.Schema{Type: huma.TypeString, MinLength: &least, MaxLength: &longest}
	}}
}

// text reads a string that check accepts.
func text[S ~string](check func(string) error) reader[S] {
	return reader[S]{read: func(value json.RawMessage, to *S) string {
		if value[0] != '"' {
			return "must be a string"
		}
		if hasLoneSurrogate(value) {
			return "must be valid UTF-8"
		}
		s := unquoted(value)
		if err := check(s); err != nil {
			if wrong, ok := errors.AsType[*inventory.InvalidError](err); ok {
				return wrong.Message
			}
			return err.Error()
		}
		*to = S(s)
		return ""
	}}
}

// oneOf reads one of the given words.
func oneOf[S ~string](words ...S) reader[S] {
	r := text[S](func(s string) error {
		if slices.Contains(words, S(s)) {
			return nil
		}
		known := make([]string, len(words))
		for i, word := range words {
			known[i] = string(word)
		}
		return errors.New("must be one of " + strings.Join(known, ", "))
	})
	r.describe = func(s *huma.Schema) { s.Enum = enum(words) }
	return r
}

// enum lists words for a schema.
func enum[S ~string](words []S) []any {
	list := make([]any, len(words))
	for i, word := range words {
		list[i] = string(word)
	}
	return list
}

// note reads a remark of at most requestrows.KeyMax characters, which may be
// empty.
func note() reader[string] {
	most := requestrows.KeyMax
	r := text[string](func(s string) error {
		if s == "" || isToken(s) {
			return nil
		}
		return fmt.Errorf("must be at most %d characters of UTF-8 without control characters", most)
	})
	r.describe = func(s *huma.Schema) { s.MaxLength = &most }
	return r
}

// hasLoneSurrogate reports whether a JSON string has an escape for half of a
// UTF-16 surrogate pair, which is not a character. encoding/json would replace
// it by U+FFFD, so that two different ids would become one.
func hasLoneSurrogate(quoted []byte) bool {
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
		if !bytes.HasPrefix(quoted[i+1:], []byte(`\u`)) || utf16.DecodeRune(unit, escaped(quoted[i+3:])) == utf8.RuneError {
			return true
		}
		i += 6
	}
	return false
}

// escaped returns the UTF-16 code unit that four hexadecimal digits denote.
func escaped(digits []byte) rune {
	n, err := strconv.ParseUint(string(digits[:4]), 16, 16)
	if err != nil { // valid JSON has four digits here
		return 0
	}
	return rune(n)
}
