package isolation

import (
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/pgerr"
)

// ErrLevel reports a transaction at REPEATABLE READ or SERIALIZABLE. Packages
// export it under their own names. It is one value, so errors.Is matches it for
// each of these packages.
var ErrLevel = errors.New("the transaction is not READ COMMITTED")

// levelSQL fails at REPEATABLE READ and SERIALIZABLE, because no setting of
// that name exists. READ UNCOMMITTED is READ COMMITTED in Postgres.
const levelSQL = `
SELECT CASE WHEN current_setting('transaction_isolation') IN ('read committed', 'read uncommitted') THEN ''
            ELSE current_setting('holdfast.needs_read_committed') END`

// undefinedObject is the SQLSTATE of a setting that does not exist.
const undefinedObject = "42704"

// Queue adds to b a statement that fails at REPEATABLE READ and SERIALIZABLE.
// It comes before the verb's first statement. If it fails, no statement after
// it runs, and Postgres aborts the transaction (or its savepoint), even if the
// caller ignores the error. It costs no round trip.
//
// Closing the results of the batch returns ErrLevel, wrapped with the error of
// the server. Package pgerr classifies that error as an outage: no row causes
// it.
func Queue(b *pgx.Batch) {
	b.Queue(levelSQL).QueryRow(func(row pgx.Row) error {
		var none string
		err := row.Scan(&none)
		if pgerr.Code(err) == undefinedObject {
			return fmt.Errorf("%w: %w", ErrLevel, err)
		}
		return err
	})
}
