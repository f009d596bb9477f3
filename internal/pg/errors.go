package pg

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/puddle/v2"
)

// IsData reports whether the row that was being written causes the error. It is
// true of every error that this package does not know.
func IsData(err error) bool {
	if err == nil {
		return false
	}
	if code := Code(err); code != "" {
		return meaningOf(code) == data
	}
	return !errors.Is(err, context.Canceled) && !isTransport(err)
}

// IsRetryable reports whether nothing happened, for certain, and the same work
// may succeed when repeated: the transaction lost a race for locks or order, or
// the connection broke before anything was sent.
//
// An ended context is not retryable, because work repeated under it cannot
// succeed. [pgconn.ErrConnClosed] is not retryable either, although the driver
// reports it so: pgx 5.12 also returns it for a COMMIT that was sent and whose
// answer was lost.
func IsRetryable(err error) bool {
	if code := Code(err); code != "" {
		return meaningOf(code) == retryable
	}
	return pgconn.SafeToRetry(err) && !isContext(err) && !errors.Is(err, pgconn.ErrConnClosed)
}

// IsOutage reports whether the error comes from the state of the server, the
// connection or the schema. A deadline that passed is an outage: the server was
// too slow.
func IsOutage(err error) bool {
	if err == nil {
		return false
	}
	if code := Code(err); code != "" {
		return meaningOf(code) == outage
	}
	return !errors.Is(err, context.Canceled) && isTransport(err)
}

// Code is the SQLSTATE of the error, or "" if it did not come from the server.
func Code(err error) string {
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		return e.Code
	}
	return ""
}

// IsLockTimeout reports whether a lock was not granted within lock_timeout. The
// transaction is aborted.
func IsLockTimeout(err error) bool { return Code(err) == "55P03" }

// IsDeadlock reports whether Postgres ended the transaction to resolve a
// deadlock.
func IsDeadlock(err error) bool { return Code(err) == "40P01" }

// IsRowLocked reports whether IsLockTimeout holds and the lock was a row lock
// of another transaction in the relation. Postgres names the relation in the
// error's context. The words and the quotation marks around the name depend on
// lc_messages, so only the name is compared. A relation whose name contains it,
// such as an index, matches too.
func IsRowLocked(err error, relation string) bool {
	e, ok := errors.AsType[*pgconn.PgError](err)
	return ok && IsLockTimeout(err) && strings.Contains(e.Where, relation)
}

// Constraint is the name of the constraint or unique index that the row
// violates (SQLSTATE class 23), or "".
func Constraint(err error) string {
	if e, ok := errors.AsType[*pgconn.PgError](err); ok && class(e.Code) == "23" {
		return e.ConstraintName
	}
	return ""
}

// IsUnique reports whether the row repeats a key of the named constraint or
// unique index.
func IsUnique(err error, constraint string) bool {
	return Code(err) == "23505" && Constraint(err) == constraint
}

func isContext(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// isTransport reports whether an error without a SQLSTATE comes from the
// connection, or from the lack of one.
func isTransport(err error) bool {
	for _, lost := range []error{
		context.DeadlineExceeded,
		io.EOF, io.ErrUnexpectedEOF, io.ErrClosedPipe, net.ErrClosed,
		pgconn.ErrConnClosed, puddle.ErrClosedPool,
	} {
		if errors.Is(err, lost) {
			return true
		}
	}
	var network net.Error
	var connect *pgconn.ConnectError
	return errors.As(err, &network) || errors.As(err, &connect) || pgconn.SafeToRetry(err)
}

// meaning is what a SQLSTATE means for the row.
type meaning int

const (
	data meaning = iota // also of every state that is not listed
	retryable
	outage
)

// states are the SQLSTATEs whose meaning differs from that of their class. The
// list follows appendix A of the PostgreSQL manual.
var states = map[string]meaning{
	"40001": retryable, // serialization_failure: another transaction was first; this one was rolled back
	"40P01": retryable, // deadlock_detected: this transaction was the victim and was rolled back
	"55P03": retryable, // lock_not_available: NOWAIT or lock_timeout; the statement changed nothing
}

// classes are the meanings of the two-character classes.
var classes = map[string]meaning{
	"21": data, // cardinality violation: the group holds a key twice; alone, each row passes
	"22": data, // data exception: out of range, too long, malformed
	"23": data, // integrity constraint violation
	"44": data, // WITH CHECK OPTION violation
	"54": data, // program limit exceeded: the row is too wide for a page or an index, its JSON too deep
	"P0": data, // raised by a function of the schema about its arguments
	"XX": data, // internal error, corrupt tuple or index: limited to what the row touches, so it must not stop other rows

	"08": outage, // connection exception
	"0A": outage, // feature not supported: a cached plan that a migration outdated is reported so
	"25": outage, // invalid transaction state: read-only after a failover, idle or transaction timeout
	"26": outage, // invalid statement name: a pooler in between lost a prepared statement
	"28": outage, // invalid authorization
	"34": outage, // invalid cursor name: as 26
	"3D": outage, // invalid catalogue: the database is gone
	"3F": outage, // invalid schema: migrations are missing
	"40": outage, // transaction rollback, except the two above: the outcome is unknown
	"42": outage, // undefined table or column, privilege: the schema does not match the program, whatever the row
	"53": outage, // insufficient resources: disk, memory, connections
	"55": outage, // object not in prerequisite state
	"57": outage, // operator intervention: shutdown, start-up, statement timeout, cancelled by an administrator
	"58": outage, // system error: I/O
	"72": outage, // snapshot too old
	"F0": outage, // configuration file error
}

func meaningOf(code string) meaning {
	if v, ok := states[code]; ok {
		return v
	}
	return classes[class(code)]
}

func class(code string) string {
	if len(code) < 2 {
		return ""
	}
	return code[:2]
}
