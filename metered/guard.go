package metered

import (
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"
)

// exactly fails a batch whose statement did not reach all n rows, although they were locked. The transaction must be
// rolled back.
func exactly(n int, doing string) func(pgconn.CommandTag) error {
	return func(tag pgconn.CommandTag) error {
		if got := tag.RowsAffected(); got != int64(n) {
			return fmt.Errorf("metered: %s reached %d of %d rows", doing, got, n)
		}
		return nil
	}
}
