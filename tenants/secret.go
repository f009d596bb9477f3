package tenants

import (
	"crypto/rand"
	"crypto/sha256"
	"hash/crc32"
	"math/big"
	"strings"
)

// A key's plaintext is the mark, 43 characters of secret (256 bits in base 62) and 6 of checksum: the CRC-32 (IEEE) of
// all that stands before it, in base 62 with leading zeros. The mark and the checksum let a typing error or a leaked
// key in a repository be recognised without asking the database.
const (
	mark           = "hf_"
	secretBytes    = 32
	secretLength   = 43
	checksumLength = 6
	keyLength      = len(mark) + secretLength + checksumLength
	prefixLength   = len(mark) + 6 // what is kept in the clear: 36 of the secret's 256 bits

	digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
)

// newSecret makes the plaintext of a key.
func newSecret() string {
	secret := make([]byte, secretBytes)
	rand.Read(secret) // never fails: the program ends instead
	body := mark + base62(new(big.Int).SetBytes(secret), secretLength)
	return body + checksum(body)
}

// WellFormed reports whether s has the form and the checksum of an API key. It says nothing of whether the key exists.
func WellFormed(s string) bool {
	if len(s) != keyLength || !strings.HasPrefix(s, mark) {
		return false
	}
	body := s[:keyLength-checksumLength]
	for i := len(mark); i < keyLength; i++ {
		if strings.IndexByte(digits, s[i]) < 0 {
			return false
		}
	}
	return s[len(body):] == checksum(body)
}

// hashOf is the form in which a key is stored and looked for.
func hashOf(plaintext string) [sha256.Size]byte { return sha256.Sum256([]byte(plaintext)) }

func checksum(body string) string {
	sum := crc32.ChecksumIEEE([]byte(body))
	return base62(new(big.Int).SetUint64(uint64(sum)), checksumLength)
}

// base62 writes n in as many characters as asked for; n fits.
func base62(n *big.Int, length int) string {
	out := make([]byte, length)
	base, digit := big.NewInt(int64(len(digits))), new(big.Int)
	for i := length - 1; i >= 0; i-- {
		n.DivMod(n, base, digit)
		out[i] = digits[digit.Int64()]
	}
	return string(out)
}
