package reservationrows

import (
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"
)

// ErrShifted says that a reservation was not any more as its caller believed: roll back, lock it, and look again.
var ErrShifted = errors.New("not all are as they were read")

// exactly fails a batch whose guarded statement did not reach all n rows: somebody else changed one of them, although it
// was locked. The transaction must be rolled back.
func exactly(n int, verb string) func(pgconn.CommandTag) error {
	return func(tag pgconn.CommandTag) error {
		if got := tag.RowsAffected(); got != int64(n) {
			return fmt.Errorf("reservation: %s reached %d of %d rows: %w", verb, got, n, ErrShifted)
		}
		return nil
	}
}
