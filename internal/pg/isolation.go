package pg

import (
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// ErrIsolation reports a transaction at REPEATABLE READ or SERIALIZABLE. Packages
// export it under their own names. It is one value, so errors.Is matches it for
// each of these packages.
var ErrIsolation = errors.New("the transaction is not READ COMMITTED")

// levelSQL fails at REPEATABLE READ and SERIALIZABLE, because no setting of
// that name exists. READ UNCOMMITTED is READ COMMITTED in Postgres.
const levelSQL = `
SELECT CASE WHEN current_setting('transaction_isolation') IN ('read committed', 'read uncommitted') THEN ''
            ELSE current_setting('holdfast.needs_read_committed') END, now()`

// undefinedObject is the SQLSTATE of a setting that does not exist.
const undefinedObject = "42704"

// QueueIsolation adds to b a statement that fails at REPEATABLE READ and
// SERIALIZABLE. It comes before the verb's first statement. If it fails, no
// statement after it runs, and Postgres aborts the transaction (or its
// savepoint), even if the caller ignores the error. It costs no round trip.
//
// Closing the results of the batch returns ErrIsolation, wrapped with the error
// of the server. That error is an outage ([IsOutage]): no row causes it.
//
// At REPEATABLE READ and SERIALIZABLE, every statement of a transaction reads
// the snapshot of its first statement. There, a verb misses a row that another
// transaction has just committed: a route, an idempotency key, a row behind a
// lock. Postgres reports a conflict (SQLSTATE 40001) only if the same row is
// also written. Such a verb needs READ COMMITTED, where each statement has its
// own snapshot.
func QueueIsolation(b *pgx.Batch) { QueueBegan(b, new(time.Time)) }

// QueueBegan is QueueIsolation, and reads when the transaction began into began.
func QueueBegan(b *pgx.Batch, began *time.Time) {
	b.Queue(levelSQL).QueryRow(func(row pgx.Row) error {
		var none string
		err := row.Scan(&none, began)
		if Code(err) == undefinedObject {
			return fmt.Errorf("%w: %w", ErrIsolation, err)
		}
		return err
	})
}
