package tenants

import (
	"strconv"
	"unicode"
	"unicode/utf8"
)

// How many characters a text may have: a name, and an idempotency key, which is as long as one of a queued request.
const (
	MaxText    = 128
	MaxKeyText = 255
)

// InvalidError is bad input: the field it came in and what is wrong with it, in words for the caller.
type InvalidError struct {
	Field   string
	Message string
}

func (e *InvalidError) Error() string { return e.Field + ": " + e.Message }

// validateText accepts 1 to most characters of UTF-8 without control characters: what Postgres stores and an index
// takes, and what reads as one line.
func validateText(field, s string, most int) error {
	switch {
	case s == "":
		return &InvalidError{Field: field, Message: "must not be empty"}
	case !utf8.ValidString(s):
		return &InvalidError{Field: field, Message: "must be valid UTF-8"}
	case utf8.RuneCountInString(s) > most:
		return &InvalidError{Field: field, Message: "must be at most " + strconv.Itoa(most) + " characters"}
	}
	for _, r := range s {
		if unicode.IsControl(r) {
			return &InvalidError{Field: field, Message: "must not contain control characters"}
		}
	}
	return nil
}
