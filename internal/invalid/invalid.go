package invalid

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Error is invalid input: the field by its JSON name, and what is wrong with
// it, in words for the caller. Each package that returns it exports an alias.
type Error struct {
	Field   string
	Message string
}

func (e *Error) Error() string { return e.Field + ": " + e.Message }

// Check is [Text] as an error: nil, or an [*Error] that names field.
func Check(field, s string, most int) error {
	if message := Text(s, most); message != "" {
		return &Error{Field: field, Message: message}
	}
	return nil
}

// Text returns what is wrong with s, in words for the caller, or "" if s is
// 1 to most characters of UTF-8 without control characters. Postgres stores
// such a text, an index takes it if most is small, and it prints as one line.
func Text(s string, most int) string {
	switch {
	case s == "":
		return "must not be empty"
	case !utf8.ValidString(s):
		return "must be valid UTF-8"
	case utf8.RuneCountInString(s) > most:
		return "must be at most " + strconv.Itoa(most) + " characters"
	case strings.ContainsFunc(s, unicode.IsControl):
		return "must not contain control characters"
	}
	return ""
}
