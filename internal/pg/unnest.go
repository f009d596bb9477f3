package pg

import (
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"
)

// Collapse shortens a column whose values are all equal to a single value, and
// returns any other column as it is. unnest fills a column that is shorter than
// the others with NULL, so the statement reads it as
// coalesce(row.column, ($n::text[])[1]). A group of 2,000 holds of one tenant
// then sends, parses and unpacks half as much.
func Collapse[T comparable](column []T) []T {
	for i := range column {
		if column[i] != column[0] {
			return column
		}
	}
	return column[:min(len(column), 1)]
}

// Reached returns a check for a statement that writes n rows, which the caller
// has locked. The check fails if the statement wrote another number of rows.
// The transaction must then be rolled back.
func Reached(n int, doing string) func(pgconn.CommandTag) error {
	return func(tag pgconn.CommandTag) error {
		if got := tag.RowsAffected(); got != int64(n) {
			return fmt.Errorf("%s reached %d of %d rows", doing, got, n)
		}
		return nil
	}
}
