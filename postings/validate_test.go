package postings_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/holdfast/holdfast/postings"
)

// A verb with invalid input changes nothing. Its error names the field.
func TestInvalidInput(t *testing.T) {
	t.Parallel()
	h := newFixture(t, 1001)
	owner := uuid.New()
	all := seats(1, 1000)
	for name, c := range map[string]struct {
		block postings.Block
		ids   []string
		owner uuid.UUID
		field string
	}{
		"too many ids":  {h.block, seats(1, 1001), owner, "unit_ids"},
		"an id twice":   {h.block, []string{"s1", "s2", "s1"}, owner, "unit_ids[2]"},
		"a NUL":         {h.block, []string{"s1", "s\x002"}, owner, "unit_ids[1]"},
		"no UTF-8":      {h.block, []string{"s\xff"}, owner, "unit_ids[0]"},
		"an empty id":   {h.block, []string{""}, owner, "unit_ids[0]"},
		"no owner":      {h.block, []string{"s1"}, uuid.Nil, "reservation_id"},
		"no tenant":     {postings.Block{Block: "hall"}, []string{"s1"}, owner, "tenant_id"},
		"no block":      {postings.Block{TenantID: h.block.TenantID}, []string{"s1"}, owner, "block"},
		"a block's NUL": {postings.Block{TenantID: h.block.TenantID, Block: "ha\x00ll"}, []string{"s1"}, owner, "block"},
	} {
		for verb, do := range map[string]func() error{
			"Reserve":    func() error { _, err := postings.Reserve(t.Context(), h.DB, c.block, c.ids, c.owner); return err },
			"Release":    func() error { _, err := postings.Release(t.Context(), h.DB, c.block, c.ids, c.owner); return err },
			"Finalize":   func() error { _, err := postings.Finalize(t.Context(), h.DB, c.block, c.ids, c.owner); return err },
			"CountOwned": func() error { _, err := postings.CountOwned(t.Context(), h.DB, c.block, c.ids, c.owner); return err },
			"ReserveAny": func() error {
				if strings.HasPrefix(c.field, "unit_ids") {
					return &postings.InvalidError{Field: c.field} // it is given no ids
				}
				_, err := postings.ReserveAny(t.Context(), h.DB, c.block, postings.Any{Count: 1}, c.owner)
				return err
			},
		} {
			err := do()
			if wrong, ok := errors.AsType[*postings.InvalidError](err); !ok || wrong.Field != c.field {
				t.Errorf("%s with %s: %v, want an error of the field %s", verb, name, err, c.field)
			}
		}
	}
	if counts := h.count(); counts["active"] != 1001 {
		t.Errorf("units %v, want all active", counts)
	}
	if n := reserve(h, owner, all...); n != 1000 {
		t.Errorf("reserved %d units, want 1000", n)
	}
	if n := reserve(h, owner); n != 0 {
		t.Errorf("reserved %d units of none", n)
	}
}
