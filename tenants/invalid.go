package tenants

import (
	"strconv"
	"unicode"
	"unicode/utf8"
)

// MaxText is how many characters a name or an idempotency key may have.
const MaxText = 128

// InvalidError is bad input: the field it came in and what is wrong with it, in words for the caller.
type InvalidError struct {
	Field   string
	Message string
}

func (e *InvalidError) Error() string { return e.Field + ": " + e.Message }

// validateText accepts 1 to MaxText characters of UTF-8 without control characters: what Postgres stores and an index
// takes, and what reads as one line.
func validateText(field, s string) error {
	switch {
	case s == "":
		return &InvalidError{Field: field, Message: "must not be empty"}
	case !utf8.ValidString(s):
		return &InvalidError{Field: field, Message: "must be valid UTF-8"}
	case utf8.RuneCountInString(s) > MaxText:
		return &InvalidError{Field: field, Message: "must be at most " + strconv.Itoa(MaxText) + " characters"}
	}
	for _, r := range s {
		if unicode.IsControl(r) {
			return &InvalidError{Field: field, Message: "must not contain control characters"}
		}
	}
	return nil
}
