package tokens

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"hash/crc32"

	"github.com/google/uuid"

	"github.com/holdfast/holdfast/internal/invalid"
)

const (
	// Prefix begins the text of each token.
	Prefix      = "hft_"
	secretBytes = 32
	textLength  = len(Prefix) + 48
)

// NewText makes the text of a token: Prefix, and 48 characters of 256 random
// bits and the CRC-32 (IEEE) of everything before it, in the URL alphabet of
// base 64.
func NewText() string {
	var raw [secretBytes + crc32.Size]byte
	rand.Read(raw[:secretBytes]) // never fails: the program ends instead
	binary.BigEndian.PutUint32(raw[secretBytes:], checksum(raw[:secretBytes]))
	return Prefix + base64.RawURLEncoding.EncodeToString(raw[:])
}

// WellFormed reports whether the text has the form and the checksum of a token,
// not whether the token exists.
func WellFormed(text string) bool {
	if len(text) != textLength || text[:len(Prefix)] != Prefix {
		return false
	}
	raw, err := base64.RawURLEncoding.DecodeString(text[len(Prefix):])
	return err == nil && len(raw) == secretBytes+crc32.Size && // shorter if it contained line breaks, which decoding skips
		binary.BigEndian.Uint32(raw[secretBytes:]) == checksum(raw[:secretBytes])
}

func checksum(secret []byte) uint32 {
	return crc32.ChecksumIEEE(append([]byte(Prefix), secret...))
}

// hashOf is the form in which a token is stored and looked up.
func hashOf(text string) [sha256.Size]byte { return sha256.Sum256([]byte(text)) }

// Terms are those on which a token is redeemed: it must have been minted for
// the tenant, the subject and one of the purposes.
type Terms struct {
	TenantID         uuid.UUID
	Purpose, Subject string
	// OrPurpose is another accepted purpose; "" for none.
	OrPurpose string
}

// Presented is a token that is presented to be redeemed. The zero value is no
// token.
type Presented struct {
	Terms
	key        key
	wellFormed bool
}

// Parse makes a Presented of the text of a token. It does not check the terms.
func Parse(text string, terms Terms) Presented {
	return Presented{terms, key{terms.TenantID, hashOf(text)}, WellFormed(text)}
}

// textMax is how many characters a purpose or a subject may have.
const textMax = 255

// Present is [Parse] for a member of a group. It returns an [*invalid.Error]
// for terms that the database does not take, because these would fail for all
// of the group. A malformed token is no invalid input: it is refused where a
// token is needed.
func Present(text string, terms Terms) (Presented, error) {
	if terms.TenantID == uuid.Nil {
		return Presented{}, &invalid.Error{Field: "tenant_id", Message: "must not be zero"}
	}
	for _, field := range []struct{ name, text string }{
		{"purpose", terms.Purpose}, {"or_purpose", terms.OrPurpose}, {"subject", terms.Subject},
	} {
		if field.text == "" && field.name == "or_purpose" {
			continue
		}
		if err := invalid.Check(field.name, field.text, textMax); err != nil {
			return Presented{}, err
		}
	}
	return Parse(text, terms), nil
}

// RefusedError is why a token is refused. Only a caller with the right purpose and
// subject learns the state of a token.
type RefusedError string

// The reasons, in the order of the checks.
const (
	// ErrMalformed means that the text cannot be a token, for example because of a
	// typing error. The database was not asked.
	ErrMalformed RefusedError = "malformed"
	// ErrUnknown means that the tenant has no such token, or that it was purged.
	ErrUnknown RefusedError = "unknown"
	ErrPurpose RefusedError = "purpose"
	ErrSubject RefusedError = "subject"
	ErrUsed    RefusedError = "used"
	ErrExpired RefusedError = "expired"
)

func (r RefusedError) Error() string {
	switch r {
	case ErrPurpose, ErrSubject:
		return "the token is not valid: minted for another " + string(r)
	default:
		return "the token is not valid: " + string(r)
	}
}
