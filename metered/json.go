package metered

import (
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
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
		return &InvalidError{Field: field, Message: "must be at most " + strconv.Itoa(most) + " bytes"}
	}
	if !json.Valid(s) || !utf8.Valid(s) {
		return &InvalidError{Field: field, Message: "must be JSON"}
	}
	if wrong := jsonbFault(s); wrong != "" {
		return &InvalidError{Field: field, Message: wrong}
	}
	return nil
}

// jsonbFault returns why jsonb does not take s, which is valid JSON, or "".
func jsonbFault(s []byte) (wrong string) {
	for depth := 0; len(s) > 0 && wrong == ""; {
		length := 1
		switch s[0] {
		case '"':
			length, wrong = scanString(s)
		case '-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9':
			length, wrong = scanNumber(s)
		case '{', '[':
			if depth++; depth > nestingMax {
				wrong = fmt.Sprintf("must not be nested more than %d deep", nestingMax)
			}
		case '}', ']':
			depth--
		}
		s = s[length:]
	}
	return wrong
}

// scanString returns the length of the string that s, valid JSON, begins with,
// and what is wrong with it. jsonb takes neither NUL nor half of a surrogate
// pair, which can only be escaped there: \\u0000 is something else.
func scanString(s []byte) (length int, wrong string) {
	const half = "must not contain half of a surrogate pair"
	for i := 1; ; i++ {
		if s[i] == '"' {
			return i + 1, wrong
		}
		if s[i] != '\\' {
			continue
		}
		r, ok := scanEscape(s[i:])
		i++ // the character that is escaped
		switch {
		case !ok:
		case r == 0:
			wrong = "must not contain the character NUL"
		case utf16.IsSurrogate(r):
			i += 4
			second, _ := scanEscape(s[i+1:])
			if utf16.DecodeRune(r, second) == utf8.RuneError {
				wrong = half
			} else {
				i += 6
			}
		}
	}
}

// scanEscape returns the number of the \u escape that s begins with.
func scanEscape(s []byte) (r rune, ok bool) {
	if len(s) < len(`\u0000`) || s[0] != '\\' || s[1] != 'u' {
		return 0, false
	}
	var number [2]byte
	if _, err := hex.Decode(number[:], s[2:6]); err != nil {
		return 0, false
	}
	return rune(binary.BigEndian.Uint16(number[:])), true
}

// scanNumber returns the length of the number that s, valid JSON, begins with,
// and what is wrong with it.
func scanNumber(s []byte) (length int, wrong string) {
	exponentAt := 0
	for length = 1; length < len(s); length++ {
		switch c := s[length]; {
		case c == 'e' || c == 'E':
			exponentAt = length + 1
		case c >= '0' && c <= '9' || c == '.' || c == '+' || c == '-':
		default:
			return length, numberFault(s[:length], exponentAt)
		}
	}
	return length, numberFault(s, exponentAt)
}

func numberFault(s []byte, exponentAt int) (wrong string) {
	if len(s) > numberMax {
		return fmt.Sprintf("must not contain a number of more than %d characters", numberMax)
	}
	if exponentAt == 0 {
		return ""
	}
	if exponent, err := strconv.Atoi(string(s[exponentAt:])); err != nil || exponent < -exponentMax || exponent > exponentMax {
		return fmt.Sprintf("must not contain a number with an exponent beyond %d", exponentMax)
	}
	return ""
}
