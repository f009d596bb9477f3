package postings

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/holdfast/holdfast/internal/invalid"
	"github.com/holdfast/holdfast/internal/unitrows"
)

// InvalidError means that the input of a call is invalid: the field, and what is
// wrong with it, in words for the caller.
type InvalidError = invalid.Error

// validate checks what a verb that changes named units is given.
func validate(block Block, unitIDs []string, reservationID uuid.UUID) error {
	switch {
	case block.TenantID == uuid.Nil:
		return &InvalidError{Field: "tenant_id", Message: "must not be zero"}
	case block.Block == "" || !storable(block.Block):
		return &InvalidError{Field: "block", Message: "must be UTF-8 without NUL, and not empty"}
	case reservationID == uuid.Nil:
		return &InvalidError{Field: "reservation_id", Message: "must not be zero"}
	case len(unitIDs) > unitrows.UnitsMax:
		return &InvalidError{Field: "unit_ids", Message: fmt.Sprintf("must be at most %d, not %d", unitrows.UnitsMax, len(unitIDs))}
	}
	seen := make(map[string]struct{}, len(unitIDs))
	for i, id := range unitIDs {
		field := fmt.Sprintf("unit_ids[%d]", i)
		if id == "" || !storable(id) {
			return &InvalidError{Field: field, Message: "must be UTF-8 without NUL, and not empty"}
		}
		if _, twice := seen[id]; twice {
			return &InvalidError{Field: field, Message: fmt.Sprintf("repeats %q", id)}
		}
		seen[id] = struct{}{}
	}
	return nil
}

// storable reports whether Postgres stores the text.
func storable(s string) bool { return utf8.ValidString(s) && !strings.ContainsRune(s, 0) }
