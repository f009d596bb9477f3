package reservations

import (
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"
)

// exactly fails a batch whose guarded statement did not reach all n rows: somebody else changed one of them, although it
// was locked. The transaction must be rolled back.
func exactly(n int, verb string) func(pgconn.CommandTag) error {
	return func(tag pgconn.CommandTag) error {
		if got := tag.RowsAffected(); got != int64(n) {
			return fmt.Errorf("reservation: %s reached %d of %d rows", verb, got, n)
		}
		return nil
	}
}
