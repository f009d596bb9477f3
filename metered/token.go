package metered

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"log/slog"
)

// Token is what spends a grant once. Its plaintext is "hft_" and 48 characters: 256 random bits and the CRC-32 (IEEE) of
// all that stands before it, in the URL alphabet of base 64. The mark lets a leaked one be recognised, and the checksum a
// typing error, without asking the database.
//
// Plaintext alone gives the plaintext. However a token, or a struct that holds one in whatever field, is formatted, logged,
// marshalled or walked by reflection, the mark comes out at most. Tokens can't be compared and are no keys of a map; the
// zero value is none.
type Token struct {
	reveal func() string // nil for none; a function because reflection, and so fmt, sees its address alone
}

const (
	mark         = "hft_"
	secretBytes  = 32
	tokenLength  = len(mark) + 48
	redactedText = mark + "…"
)

// newToken makes the plaintext of a token.
func newToken() Token {
	var raw [secretBytes + crc32.Size]byte
	rand.Read(raw[:secretBytes]) // never fails: the program ends instead
	binary.BigEndian.PutUint32(raw[secretBytes:], checksum(raw[:secretBytes]))
	return ParseToken(mark + base64.RawURLEncoding.EncodeToString(raw[:]))
}

// ParseToken takes any text for a token, none if it is empty; [Token.WellFormed] says whether it can be one.
func ParseToken(text string) Token {
	if text == "" {
		return Token{}
	}
	return Token{reveal: func() string { return text }}
}

// Plaintext is the text of the token, "" for none: it is for whoever the token was minted for, and nobody else.
func (t Token) Plaintext() string {
	if t.IsZero() {
		return ""
	}
	return t.reveal()
}

// IsZero reports whether there is no token.
func (t Token) IsZero() bool { return t.reveal == nil }

// WellFormed reports whether the token has the form and the checksum of one. It says nothing of whether it exists.
func (t Token) WellFormed() bool {
	text := t.Plaintext()
	if len(text) != tokenLength || text[:len(mark)] != mark {
		return false
	}
	raw, err := base64.RawURLEncoding.DecodeString(text[len(mark):])
	return err == nil && len(raw) == secretBytes+crc32.Size && // shorter if it held line breaks, which decoding leaves out
		binary.BigEndian.Uint32(raw[secretBytes:]) == checksum(raw[:secretBytes])
}

func checksum(secret []byte) uint32 { return crc32.ChecksumIEEE(append([]byte(mark), secret...)) }

// hash is the form in which a token is stored and looked for.
func (t Token) hash() [sha256.Size]byte { return sha256.Sum256([]byte(t.Plaintext())) }

// Format writes the mark, whatever the verb.
func (Token) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, redactedText) }

// LogValue is the mark.
func (Token) LogValue() slog.Value { return slog.StringValue(redactedText) }

// MarshalText gives the mark.
func (Token) MarshalText() ([]byte, error) { return []byte(redactedText), nil }
