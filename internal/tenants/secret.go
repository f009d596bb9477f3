package tenants

import (
	"crypto/rand"
	"crypto/sha256"
	"hash/crc32"
	"math/big"
	"strings"
)

// A key's plaintext is the prefix, 43 characters of secret (256 bits in base
// 62) and 6 of checksum: the CRC-32 (IEEE) of everything before it, in base 62
// with leading zeros. Scanners recognise a leaked key by the prefix, and the
// checksum detects a typing error without the database.
const (
	secretPrefix   = "hf_"
	secretBytes    = 32
	secretLength   = 43
	checksumLength = 6
	keyLength      = len(secretPrefix) + secretLength + checksumLength
	prefixLength   = len(secretPrefix) + 6 // stored in plaintext: 36 of the secret's 256 bits

	digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
)

// newSecret returns the plaintext of a new key.
func newSecret() string {
	secret := make([]byte, secretBytes)
	rand.Read(secret) // never fails: the program ends instead
	body := secretPrefix + base62(new(big.Int).SetBytes(secret), secretLength)
	return body + checksum(body)
}

// WellFormed reports whether s has the form and the checksum of an API key, not
// whether the key exists.
func WellFormed(s string) bool {
	if len(s) != keyLength || !strings.HasPrefix(s, secretPrefix) {
		return false
	}
	body := s[:keyLength-checksumLength]
	for i := len(secretPrefix); i < keyLength; i++ {
		if strings.IndexByte(digits, s[i]) < 0 {
			return false
		}
	}
	return s[len(body):] == checksum(body)
}

// hashOf returns the form in which a key is stored and looked up.
func hashOf(plaintext string) [sha256.Size]byte { return sha256.Sum256([]byte(plaintext)) }

func checksum(body string) string {
	sum := crc32.ChecksumIEEE([]byte(body))
	return base62(new(big.Int).SetUint64(uint64(sum)), checksumLength)
}

// base62 formats n with length characters. n must fit.
func base62(n *big.Int, length int) string {
	out := make([]byte, length)
	base, digit := big.NewInt(int64(len(digits))), new(big.Int)
	for i := length - 1; i >= 0; i-- {
		n.DivMod(n, base, digit)
		out[i] = digits[digit.Int64()]
	}
	return string(out)
}
