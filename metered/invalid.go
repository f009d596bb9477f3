package metered

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// InvalidError is bad input: the field it came in and what is wrong with it, in words for the caller.
type InvalidError struct {
	Field   string
	Message string
}

func (e *InvalidError) Error() string { return e.Field + ": " + e.Message }

// TextMax is how many characters a scope, a purpose, a subject or an idempotency key may have.
const TextMax = 255

// validateText accepts 1 to most characters of UTF-8 without control characters: what Postgres stores and an index takes.
func validateText(field, s string, most int) error {
	switch {
	case s == "":
		return &InvalidError{Field: field, Message: "must not be empty"}
	case !utf8.ValidString(s):
		return &InvalidError{Field: field, Message: "must be valid UTF-8"}
	case utf8.RuneCountInString(s) > most:
		return &InvalidError{Field: field, Message: "must be at most " + strconv.Itoa(most) + " characters"}
	case strings.ContainsFunc(s, unicode.IsControl):
		return &InvalidError{Field: field, Message: "must not contain control characters"}
	}
	return nil
}

// validateJSON accepts what Postgres takes as jsonb, as far as it can be told without parsing numbers.
func validateJSON(field string, s json.RawMessage, most int) error {
	switch {
	case len(s) > most:
		return &InvalidError{Field: field, Message: "must be at most " + strconv.Itoa(most) + " bytes"}
	case !json.Valid(s) || !utf8.Valid(s):
		return &InvalidError{Field: field, Message: "must be JSON"}
	case escapesNUL(s):
		return &InvalidError{Field: field, Message: "must not contain the character NUL"}
	}
	return nil
}

// escapesNUL reports whether valid JSON holds \u0000, which jsonb refuses; \\u0000 is another thing.
func escapesNUL(s []byte) bool {
	for {
		i := bytes.IndexByte(s, '\\')
		if i < 0 {
			return false
		}
		if bytes.HasPrefix(s[i:], []byte(`\u0000`)) {
			return true
		}
		s = s[i+2:] // valid JSON has a character after each backslash
	}
}
