package metered

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/google/uuid"
)

// InvalidError is bad input: the field it came in and what is wrong with it, in words for the caller. It is ErrInvalid.
type InvalidError struct {
	Field   string
	Message string
}

func (e *InvalidError) Error() string { return "metered: " + e.Field + ": " + e.Message }

// Unwrap returns ErrInvalid.
func (*InvalidError) Unwrap() error { return ErrInvalid }

// TextMax is how many characters a scope, a purpose, a subject or an idempotency key may have.
const TextMax = 255

// validateTenant refuses the zero tenant, which is a forgotten one: what it charged or spent would be common to all callers
// that forget it.
func validateTenant(tenantID uuid.UUID) error {
	if tenantID == uuid.Nil {
		return &InvalidError{Field: "tenant_id", Message: "must not be zero"}
	}
	return nil
}

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
