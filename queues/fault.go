package queues

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/holdfast/holdfast/internal/pgerr"
	"github.com/holdfast/holdfast/internal/telemetry"
	"github.com/holdfast/holdfast/inventory"
)

// isRowsFault reports whether a failed transaction may be the fault of a row in it, rather than of the database, its
// connection, a conflict or due holds that must go first, which say nothing of the rows.
func isRowsFault(ctx context.Context, err error) bool {
	return err != nil && ctx.Err() == nil && !errors.Is(err, ErrBusy) && !errors.Is(err, context.DeadlineExceeded) &&
		!errors.As(err, new(*inventory.BacklogError)) && !pgerr.IsRetryable(err) && !pgerr.IsOutage(err)
}

// panicError is the error of a transaction that panicked and was rolled back. It is taken for a row's fault: the row that
// the panic comes with is isolated, and neither stops its lane nor ends the process, with which the other lane would end.
type panicError struct {
	value any
	stack []byte
}

func fromPanic(p any) error { return &panicError{value: p, stack: debug.Stack()} }

func (e *panicError) Error() string { return fmt.Sprintf("panic: %v\n%s", e.value, e.stack) }

const (
	// roomPiece is how many due holds one transaction ends to make room, roomPieces how many of those follow each other
	// before the drain looks again.
	roomPiece  = 1000
	roomPieces = 10
)

// makeRoom ends some of a variant's due holds, so that the drain can go on. What it did stays, also after an error.
func (d *Drain) makeRoom(ctx context.Context, variant inventory.Ref) error {
	ctx, cancel := context.WithTimeout(ctx, d.config.TransactionTimeout)
	defer cancel()
	for range roomPieces {
		expired, err := inventory.ExpireVariant(ctx, d.db, variant, roomPiece)
		telemetry.Expired(ctx, "drain", expired)
		if err != nil || expired < roomPiece {
			return err
		}
	}
	return nil
}
