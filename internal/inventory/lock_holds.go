package inventory

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/pg"
	"github.com/holdfast/holdfast/internal/reservationrows"
	"github.com/holdfast/holdfast/reservations"
)

const (
	saveSQL    = `SAVEPOINT holdfast_stocks`
	undoSQL    = `ROLLBACK TO SAVEPOINT holdfast_stocks`
	releaseSQL = `RELEASE SAVEPOINT holdfast_stocks`
)

// holdTries is how often holdLock.lockTx waits for holds without a stock. After
// that it waits for them with the stocks.
const holdTries = 10

// holdLock locks stocks and then their holds in the caller's transaction. It
// waits for a hold only while it has no stock locked: if another transaction
// has locked one of the holds, it unlocks the stocks (ROLLBACK TO SAVEPOINT),
// waits, and starts again. So a hold that stays locked does not keep the other
// requests for its variant waiting.
type holdLock struct {
	// stocks adds what locks the stocks. then, if not nil, adds what else is read
	// under the locks.
	stocks, then func(*pgx.Batch)
	// refs and pairs name the holds, as in reservationrows.QueueLock.
	refs  []reservationrows.Ref
	pairs []reservationrows.HolderKey

	held []reservations.Reservation
	now  time.Time // a reading of the database's clock under the locks
}

// lockTx locks all, and leaves the savepoint to be released by releaseSQL.
func (l *holdLock) lockTx(ctx context.Context, tx pgx.Tx) error {
	for range holdTries {
		var others []reservations.Reservation
		if err := l.sendTx(ctx, tx, func(b *pgx.Batch) {
			reservationrows.QueueTryLock(b, Kind, l.refs, l.pairs, func(locked, left []reservations.Reservation) { l.held, others = locked, left })
		}); err != nil || len(others) == 0 {
			return err
		}
		b := &pgx.Batch{}
		b.Queue(undoSQL)
		reservationrows.QueueLock(b, Kind, reservationrows.Refs(others), nil)
		b.Queue(undoSQL)
		b.Queue(releaseSQL)
		if err := tx.SendBatch(ctx, b).Close(); err != nil {
			return fmt.Errorf("wait for %d locked holds: %w", len(others), err)
		}
	}
	locked := new([]reservations.Reservation)
	err := l.sendTx(ctx, tx, func(b *pgx.Batch) { locked = reservationrows.QueueLock(b, Kind, l.refs, l.pairs) })
	l.held = *locked
	return err
}

// sendTx locks the stocks and, with lock, the holds.
func (l *holdLock) sendTx(ctx context.Context, tx pgx.Tx, lock func(*pgx.Batch)) error {
	b := &pgx.Batch{}
	b.Queue(saveSQL)
	l.stocks(b)
	if len(l.refs)+len(l.pairs) > 0 {
		lock(b)
	}
	pg.QueueClock(b, &l.now)
	if l.then != nil {
		l.then(b)
	}
	if err := tx.SendBatch(ctx, b).Close(); err != nil {
		return fmt.Errorf("lock what is held: %w", err)
	}
	return nil
}
