package metered

import (
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
