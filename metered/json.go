package metered

import (
	"bytes"
	"encoding/json"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// Bounds of JSON, below what Postgres' jsonb takes. Without the bound of the
// exponent, a few bytes would become a hundred thousand digits in an index.
const (
	nestingMax  = 1000
	numberMax   = 1000
	exponentMax = 1000
)

// validateJSON accepts only what Postgres takes as jsonb. Anything else would
// fail the caller's transaction.
func validateJSON(field string, s json.RawMessage, most int) error {
	if len(s) > most {
		return invalidField(field, "must be at most %d bytes", most)
	}
	if !json.Valid(s) || !utf8.Valid(s) {
		return invalidField(field, "must be JSON")
	}
	if err := validateEscapes(field, s); err != nil {
		return err
	}
	return validateTokens(field, s)
}

// escape is one escape of a string: the number of its character, if it has one.
var escape = regexp.MustCompile(`\\(?:u([0-9a-fA-F]{4})|.)`)

// validateEscapes checks the strings of s, which is valid JSON. jsonb takes
// neither NUL nor half of a surrogate pair, which can only be escaped there:
// \\u0000 is something else.
func validateEscapes(field string, s []byte) error {
	const half = "must not contain half of a surrogate pair"
	high, pairAt := rune(0), -1 // the first half of a pair, and where the second must begin
	for _, at := range escape.FindAllSubmatchIndex(s, -1) {
		r := rune(-1)
		if at[2] >= 0 {
			number, _ := strconv.ParseUint(string(s[at[2]:at[3]]), 16, 16) // four digits
			r = rune(number)
		}
		switch {
		case pairAt >= 0:
			if at[0] != pairAt || utf16.DecodeRune(high, r) == utf8.RuneError {
				return invalidField(field, half)
			}
			pairAt = -1
		case r == 0:
			return invalidField(field, "must not contain the character NUL")
		case utf16.IsSurrogate(r):
			high, pairAt = r, at[1]
		}
	}
	if pairAt >= 0 {
		return invalidField(field, half)
	}
	return nil
}

// validateTokens checks the nesting and the numbers of s, which is valid JSON.
func validateTokens(field string, s []byte) error {
	decoder := json.NewDecoder(bytes.NewReader(s))
	decoder.UseNumber()
	for depth := 0; ; {
		token, err := decoder.Token()
		if err != nil {
			return nil // the end, because s is valid
		}
		switch token := token.(type) {
		case json.Delim:
			if token == '{' || token == '[' {
				depth++
			} else {
				depth--
			}
			if depth > nestingMax {
				return invalidField(field, "must not be nested more than %d deep", nestingMax)
			}
		case json.Number:
			if len(token) > numberMax {
				return invalidField(field, "must not contain a number of more than %d characters", numberMax)
			}
			_, exponent, has := strings.Cut(strings.ToLower(token.String()), "e")
			if n, err := strconv.Atoi(exponent); has && (err != nil || n < -exponentMax || n > exponentMax) {
				return invalidField(field, "must not contain a number with an exponent beyond %d", exponentMax)
			}
		}
	}
}
