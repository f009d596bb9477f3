package pgerr

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/puddle/v2"
)

// IsData reports whether the row that was being written, or an error this package does not know, is at fault.
func IsData(err error) bool {
	if err == nil {
		return false
	}
	if code := Code(err); code != "" {
		return verdictOf(code) == data
	}
	return !errors.Is(err, context.Canceled) && !isTransport(err)
}

// IsRetryable reports whether it is certain that nothing happened and that doing the same again may succeed: a lost
// race for locks or order, or a connection that broke before anything was sent. An ended context is not retryable,
// because doing the same again under it cannot succeed. Neither is [pgconn.ErrConnClosed], whatever the driver says of it:
// pgx 5.12 gives it also for a COMMIT that was sent and whose answer was lost.
func IsRetryable(err error) bool {
	if code := Code(err); code != "" {
		return verdictOf(code) == retryable
	}
	return pgconn.SafeToRetry(err) && !isContext(err) && !errors.Is(err, pgconn.ErrConnClosed)
}

// IsOutage reports whether the error comes from the state of the server, the connection or the schema. A deadline that
// passed is one: the server was too slow.
func IsOutage(err error) bool {
	if err == nil {
		return false
	}
	if code := Code(err); code != "" {
		return verdictOf(code) == outage
	}
	return !errors.Is(err, context.Canceled) && isTransport(err)
}

// Code is the SQLSTATE of the error, or "" if it did not come from the server.
func Code(err error) string {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		return pg.Code
	}
	return ""
}

// IsLockTimeout reports whether a lock was not granted within lock_timeout. The transaction is aborted.
func IsLockTimeout(err error) bool { return Code(err) == "55P03" }

// IsRowLocked reports whether IsLockTimeout holds and the lock was that of another transaction's row in the relation, rather
// than of the relation or of anything else. Postgres names the relation in the error's context. The words around the name
// and its quotation marks depend on lc_messages, so only the name is compared: a relation whose name contains it, as that
// of an index may, is taken for it.
func IsRowLocked(err error, relation string) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && IsLockTimeout(err) && strings.Contains(pg.Where, relation)
}

// Constraint is the name of the constraint or unique index that the row violates (SQLSTATE class 23), or "".
func Constraint(err error) string {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok && class(pg.Code) == "23" {
		return pg.ConstraintName
	}
	return ""
}

// IsUnique reports whether the row repeats a key of the named constraint or unique index.
func IsUnique(err error, constraint string) bool {
	return Code(err) == "23505" && Constraint(err) == constraint
}

func isContext(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// isTransport reports whether an error without a SQLSTATE tells of the way to the server, or of the lack of one.
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
