package pg_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/holdfast/holdfast/internal/pg"
	"github.com/holdfast/holdfast/internal/pgtest"
)

// A statement reads back the rows from which the columns were made.
func TestCollapse(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	for _, c := range []struct {
		column []string
		sent   int
	}{
		{nil, 0}, {[]string{"a"}, 1}, {[]string{""}, 1}, {[]string{"a", "a", "a"}, 1}, {[]string{"", "", ""}, 1},
		{[]string{"", "", "a"}, 3}, {[]string{"a", "b", "a"}, 3},
	} {
		sent := pg.Collapse(slices.Clone(c.column))
		if len(sent) != c.sent {
			t.Errorf("%q: %d values are sent, want %d", c.column, len(sent), c.sent)
		}
		places := make([]int32, len(c.column))
		for i := range places {
			places[i] = int32(i)
		}
		var got []string
		err := db.QueryRow(t.Context(), `
			SELECT coalesce(array_agg(coalesce(e.v, ($2::text[])[1]) ORDER BY e.place), '{}')
			FROM unnest($1::integer[], $2::text[]) AS e (place, v)`, places, sent).Scan(&got)
		if err != nil || !slices.Equal(got, c.column) {
			t.Errorf("%q was read as %q, %v", c.column, got, err)
		}
	}
}

func ExampleCollapse() {
	fmt.Println(pg.Collapse([]string{"held", "held", "held"}), pg.Collapse([]string{"cart-1", "cart-2"}))
	// Output: [held] [cart-1 cart-2]
}
