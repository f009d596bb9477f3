package inventory_test

import (
	"testing"
	"time"

	"github.com/holdfast/holdfast/internal/inventory"
)

// A time that a record cannot contain is refused.
func TestSaleTimes(t *testing.T) {
	t.Parallel()
	late, early := time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(1969, 12, 31, 23, 59, 59, 0, time.UTC)
	for _, test := range []struct {
		sale  inventory.Sale
		field string
	}{
		{inventory.Sale{StartsAt: &late}, "sale_starts_at"},
		{inventory.Sale{EndsAt: &early}, "sale_ends_at"},
		{inventory.Sale{EndsAt: new(time.Date(9999, 12, 31, 23, 59, 59, 0, time.FixedZone("", -3600)))}, "sale_ends_at"},
		{inventory.Sale{StartsAt: new(time.Time)}, ""},
	} {
		if got := invalidField(inventory.StockPatch{Sale: &test.sale}.Validate()); got != test.field {
			t.Errorf("the field of %+v is %q, want %q", test.sale, got, test.field)
		}
	}
}
