package reservationrows

import (
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"
)

// ErrChanged means that a reservation has changed since the caller read it.
// Roll back, lock it, and read it again.
var ErrChanged = errors.New("a row has changed since it was read")

// exactly fails a batch whose guarded statement did not reach all n rows,
// because another transaction has changed one of them. The transaction must be
// rolled back.
func exactly(n int, verb string) func(pgconn.CommandTag) error {
	return func(tag pgconn.CommandTag) error {
		if got := tag.RowsAffected(); got != int64(n) {
			return fmt.Errorf("reservations: %s reached %d of %d rows: %w", verb, got, n, ErrChanged)
		}
		return nil
	}
}
