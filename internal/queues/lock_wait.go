package queues

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/internal/pg"
	"github.com/holdfast/holdfast/internal/sleep"
)

// A drain that waits for the lock of its stock is in Postgres's queue for that
// lock, so it gets the lock although other transactions want it all the time. A
// hot stock is locked by checkouts, by direct decisions and by other verbs, for
// some milliseconds each, and the drain gets its turn among them.
//
// A transaction that keeps the lock for seconds is another case. A drain waits
// for it briefly, then leaves the stock to a lockWatch, which needs one
// statement for all such stocks. The stream is drained again as soon as the
// stock is free, or another transaction has the lock.

// lockWaitFirst is how long a drain of the hot lane waits for its stock. It
// doubles each further time in a row, up to deferWait, so that a stream gets its
// turn also among transactions that each take long.
const lockWaitFirst = 100 * time.Millisecond

// LockWaits is how many drains of a hot lane wait for locks, beside those that
// its Concurrency permits.
func LockWaits(concurrency int) int { return (concurrency + 1) / 2 }

// lockWait is how long the next drain of the stream waits for a lock.
func (s *stream) lockWait(t traits) time.Duration {
	if !t.waits {
		return deferWait
	}
	return min(lockWaitFirst<<min(s.locked.Load(), 10), deferWait)
}

// noteLock records whether a drain found the stock of the stream locked.
func (s *stream) noteLock(report Report) {
	switch {
	case report.locked != nil:
		s.locked.Add(1)
	case report.Claimed > 0:
		s.locked.Store(0)
	}
}

// stockLockedError means that another transaction kept the lock of a stock
// during the whole wait of a batch, or that too many batches wait already.
type stockLockedError struct{ stock inventory.Ref }

func (e *stockLockedError) Error() string {
	return fmt.Sprintf("another transaction has locked the stock of variant %s", e.stock.VariantID)
}

// lockedStock returns the stock that a stockLockedError is about, else nil.
func lockedStock(err error) *inventory.Ref {
	locked, ok := errors.AsType[*stockLockedError](err)
	if !ok {
		return nil
	}
	return &locked.stock
}

const lockTimeoutSQL = `SELECT set_config('lock_timeout', $1, true)`

// withShortLockTimeout makes hold wait for locks no longer than the batch's
// permit allows. If another transaction has locked the stock, the batch first
// gives its permit back.
//
// It tries the lock before it waits, unless the batch has several stocks: they
// are locked in order, and one that is tried out of order may deadlock.
func withShortLockTimeout(hold holdFunc) holdFunc {
	return func(ctx context.Context, tx pgx.Tx, asks []inventory.HoldRequest, terms inventory.Terms) (*inventory.Holding, error) {
		p, stock := permitOf(ctx), inventory.Ref{TenantID: asks[0].TenantID, VariantID: asks[0].VariantID}
		b := &pgx.Batch{}
		b.Queue(lockTimeoutSQL, strconv.FormatInt(p.lockWait.Milliseconds(), 10))
		free := func() bool { return false }
		if ofOneStock(asks) {
			free = inventory.QueueLocking(b, asks[:1], terms, false).Complete
		}
		if err := tx.SendBatch(ctx, b).Close(); err != nil {
			return nil, err
		}
		waits := !free()
		if waits && !p.wait() {
			return nil, &stockLockedError{stock}
		}
		holding, err := hold(ctx, tx, asks, terms)
		if waits && p.exchanged && pg.IsLockTimeout(err) {
			return nil, &stockLockedError{stock}
		}
		return holding, err
	}
}

func ofOneStock(asks []inventory.HoldRequest) bool {
	for i := range asks {
		if asks[i].VariantID != asks[0].VariantID || asks[i].TenantID != asks[0].TenantID {
			return false
		}
	}
	return true
}

// lockWatch finds out when locked stocks are worth another try. Of the streams
// that wait, one at a time queries for all of them. It is safe for concurrent
// use.
type lockWatch struct {
	db      *pgxpool.Pool
	probing chan struct{} // capacity 1

	mu      sync.Mutex
	watched map[*watchedStock]struct{}
	idle    int // how many queries in a row found no stock worth another try
}

// watchedMax is how many stocks one query is about.
const watchedMax = 1000

// watchedStock is a stock that a stream waits for.
type watchedStock struct {
	ref   inventory.Ref
	owner string        // the transaction that has the lock; "" before the first query
	ready chan struct{} // closed when another try is worthwhile
}

// wait waits until the stock is free, until another transaction than at first
// has the lock, or until the database does not answer; the next drain then finds
// out. It returns an error if ctx ends.
func (w *lockWatch) wait(ctx context.Context, ref inventory.Ref) error {
	s := &watchedStock{ref: ref, ready: make(chan struct{})}
	w.mu.Lock()
	if w.watched == nil {
		w.watched = make(map[*watchedStock]struct{})
	}
	w.watched[s] = struct{}{}
	w.idle = 0
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.watched, s)
	}()
	for {
		select {
		case <-s.ready:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case w.probing <- struct{}{}:
			select {
			case <-s.ready:
			default:
				w.probe(ctx)
			}
			<-w.probing
		}
	}
}

// probe queries, after a pause, who has the locks of the watched stocks.
func (w *lockWatch) probe(ctx context.Context) {
	w.mu.Lock()
	w.idle++
	pause := blockedPause(w.idle)
	w.mu.Unlock()
	if sleep.For(ctx, pause) != nil {
		return
	}
	w.mu.Lock()
	var watched []*watchedStock
	var refs []inventory.Ref
	for s := range w.watched {
		if len(refs) == watchedMax {
			break
		}
		watched, refs = append(watched, s), append(refs, s.ref)
	}
	w.mu.Unlock()
	querying, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	owners, err := inventory.LockOwners(querying, w.db, refs)
	if ctx.Err() != nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range watched {
		owner := owners[s.ref]
		_, waits := w.watched[s]
		switch {
		case !waits: // no longer
		case err != nil, owner == "", s.owner != "" && s.owner != owner:
			delete(w.watched, s)
			close(s.ready)
			w.idle = 0
		default:
			s.owner = owner
		}
	}
}
