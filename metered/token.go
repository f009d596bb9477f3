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

// Token is the plaintext of a token: "hft_" and 48 characters that are 256 random bits and the CRC-32 (IEEE) of all
// that stands before it, in the URL alphabet of base 64. The mark lets a leaked one be recognised, and the checksum a
// typing error, without asking the database.
//
// However it is formatted, logged or marshalled, only the mark comes out: the conversion string(token) alone gives the
// plaintext.
type Token string

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
	return Token(mark + base64.RawURLEncoding.EncodeToString(raw[:]))
}

// WellFormed reports whether the token has the form and the checksum of one. It says nothing of whether it exists.
func (t Token) WellFormed() bool {
	if len(t) != tokenLength || t[:len(mark)] != mark {
		return false
	}
	raw, err := base64.RawURLEncoding.DecodeString(string(t[len(mark):]))
	return err == nil && len(raw) == secretBytes+crc32.Size && // shorter if it held line breaks, which decoding leaves out
		binary.BigEndian.Uint32(raw[secretBytes:]) == checksum(raw[:secretBytes])
}

func checksum(secret []byte) uint32 { return crc32.ChecksumIEEE(append([]byte(mark), secret...)) }

// hash is the form in which a token is stored and looked for.
func (t Token) hash() [sha256.Size]byte { return sha256.Sum256([]byte(t)) }

// Format writes the mark, whatever the verb.
func (Token) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, redactedText) }

// LogValue is the mark.
func (Token) LogValue() slog.Value { return slog.StringValue(redactedText) }

// MarshalText gives the mark.
func (Token) MarshalText() ([]byte, error) { return []byte(redactedText), nil }
