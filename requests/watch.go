package requests

import (
	"context"
	"encoding/base64"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
)

// channel is where the ids of finished requests are announced.
const channel = "holdfast_done"

// idsPerNotify keeps a payload under the 8,000 bytes that Postgres takes.
const idsPerNotify = 350

// idLength is the length of an id in a payload: 16 bytes in unpadded base64.
const idLength = 22

// announceSQL does not wait for the disk: an announcement that is lost costs a second, not an answer.
const announceSQL = `
SELECT set_config('synchronous_commit', 'off', true), pg_notify('` + channel + `', payload)
FROM unnest($1::text[]) AS payload`

// Announce tells every process that the requests are finished. Call it after the commit.
func Announce(ctx context.Context, db Execer, finished []Request) error {
	var payloads []string
	for start := 0; start < len(finished); start += idsPerNotify {
		piece := finished[start:min(start+idsPerNotify, len(finished))]
		payload := make([]byte, 0, len(piece)*idLength)
		for i := range piece {
			payload = base64.RawURLEncoding.AppendEncode(payload, piece[i].RequestID[:])
		}
		payloads = append(payloads, string(payload))
	}
	if len(payloads) == 0 {
		return nil
	}
	if _, err := db.Exec(ctx, announceSQL, payloads); err != nil {
		return fmt.Errorf("announce %d finished requests: %w", len(finished), err)
	}
	return nil
}

// Watcher lets callers wait for requests to finish. A process needs one: it listens on one connection and wakes whoever
// waits. Waiters also read again by themselves each second or so, so a lost announcement is no lost answer.
type Watcher struct {
	db  *pgxpool.Pool
	log *slog.Logger

	mu      sync.Mutex
	waiters map[uuid.UUID][]chan struct{}

	once  sync.Once
	ended chan struct{} // closed when Run returns
}

// NewWatcher makes a watcher; Run makes it listen.
func NewWatcher(db *pgxpool.Pool, log *slog.Logger) *Watcher {
	return &Watcher{db: db, log: log, waiters: make(map[uuid.UUID][]chan struct{}), ended: make(chan struct{})}
}

// Run listens until ctx ends; then nobody waits any more: a process that stops answers with what there is. It connects
// again when the connection is lost.
func (w *Watcher) Run(ctx context.Context) error {
	defer w.once.Do(func() { close(w.ended) })
	for {
		err := w.listen(ctx)
		if ctx.Err() != nil {
			return nil
		}
		w.log.WarnContext(ctx, "listening for finished requests was interrupted; waiters read again by themselves", "error", err)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(500 * time.Millisecond):
		}
	}
}

func (w *Watcher) listen(ctx context.Context) error {
	pooled, err := w.db.Acquire(ctx)
	if err != nil {
		return err
	}
	conn := pooled.Hijack()
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	if _, err := conn.Exec(ctx, "LISTEN "+channel); err != nil {
		return err
	}
	for {
		n, err := conn.WaitForNotification(ctx)
		if err != nil {
			return err
		}
		w.wake(n.Payload)
	}
}

func (w *Watcher) wake(payload string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for ; len(payload) >= idLength; payload = payload[idLength:] {
		var id uuid.UUID
		if _, err := base64.RawURLEncoding.Decode(id[:], []byte(payload[:idLength])); err != nil {
			w.log.Warn("an announcement could not be read", "error", err)
			return
		}
		for _, waiter := range w.waiters[id] {
			close(waiter)
		}
		delete(w.waiters, id)
	}
}

// Wait returns the request once it is finished, or as it is when the timeout is over or Run has returned.
//
// Errors: ErrNotFound, and ctx's when it ends first.
func (w *Watcher) Wait(ctx context.Context, tenantID, requestID uuid.UUID, timeout time.Duration) (View, error) {
	over := time.NewTimer(timeout)
	defer over.Stop()
	for {
		woken := w.join(requestID)
		r, err := getRow(ctx, w.db, tenantID, requestID)
		if err != nil {
			w.leave(requestID, woken)
			return View{}, err
		}
		if r.Status.Finished() {
			w.leave(requestID, woken)
			return Look(ctx, w.db, r)
		}
		again := time.NewTimer(750*time.Millisecond + rand.N(500*time.Millisecond)) //nolint:gosec // it only spreads the reads
		select {
		case <-woken:
		case <-again.C:
		case <-over.C:
			err = context.DeadlineExceeded
		case <-w.ended:
			err = context.Canceled
		case <-ctx.Done():
			err = ctx.Err()
		}
		again.Stop()
		w.leave(requestID, woken)
		switch {
		case ctx.Err() != nil:
			return View{Request: r}, ctx.Err()
		case err != nil:
			return Look(ctx, w.db, r) // its position is counted once, not each time a waiter reads again
		}
	}
}

func (w *Watcher) join(id uuid.UUID) chan struct{} {
	woken := make(chan struct{})
	w.mu.Lock()
	defer w.mu.Unlock()
	w.waiters[id] = append(w.waiters[id], woken)
	return woken
}

func (w *Watcher) leave(id uuid.UUID, woken chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	waiting := w.waiters[id]
	for i := range waiting {
		if waiting[i] == woken {
			waiting[i] = waiting[len(waiting)-1]
			waiting = waiting[:len(waiting)-1]
			break
		}
	}
	if len(waiting) == 0 {
		delete(w.waiters, id)
	} else {
		w.waiters[id] = waiting
	}
}
