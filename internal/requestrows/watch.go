package requestrows

import (
	"context"
	"encoding/base64"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/internal/pg"
	"github.com/holdfast/holdfast/requests"
)

// channel is the NOTIFY channel that carries the ids of finished requests.
const channel = "holdfast_done"

// idsPerNotify keeps a payload under 8,000 bytes, the limit of Postgres.
const idsPerNotify = 350

// idLength is the length of an id in a payload: 16 bytes in unpadded base64.
const idLength = 22

// notifySQL commits without waiting for the disk. A lost notification delays
// an answer by a second, and loses none.
const notifySQL = `
SELECT set_config('synchronous_commit', 'off', true), pg_notify('` + channel + `', payload)
FROM unnest($1::text[]) AS payload`

// NotifyFinished notifies every process that the requests are finished. The
// caller calls it after the commit.
func NotifyFinished(ctx context.Context, db execer, finished []requests.Request) error {
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
	if _, err := db.Exec(ctx, notifySQL, payloads); err != nil {
		return fmt.Errorf("notify of %d finished requests: %w", len(finished), err)
	}
	return nil
}

// Watcher lets callers wait for requests to be decided. A process needs one. It
// listens on one connection, and reads in groups the requests that callers wait
// for. It also reads each request again about every second, so a lost
// notification loses no answer.
type Watcher struct {
	db     *pgxpool.Pool
	log    *slog.Logger
	reread time.Duration // without a notification, three halves of it at most

	waiting atomic.Int64 // calls of Wait

	mu      sync.Mutex
	waiters map[uuid.UUID][]*waiter
	unread  []*waiter // to be read by the next group
	readers int       // goroutines that read

	once  sync.Once
	ended chan struct{} // closed when Run returns
}

// waiter is one caller that waits for a request.
type waiter struct {
	ref    Ref
	until  func(requests.Status) bool
	unread bool // it is in Watcher.unread
	// present means that the next read ends the wait, even if the request is
	// unfinished then.
	present bool
	found   chan struct{} // closed once view or err is set
	view    requests.View
	err     error
}

const (
	// readersMax is how many groups are read at the same time. readMax is how
	// many requests a group has at most.
	readersMax, readMax = 2, 500
	// readTimeout bounds the time to read a group.
	readTimeout = 5 * time.Second
	// rereadEvery is how often a request is read without a notification, on
	// average 1 s.
	rereadEvery = 800 * time.Millisecond
)

// NewWatcher returns a watcher. Run makes it listen.
func NewWatcher(db *pgxpool.Pool, log *slog.Logger) *Watcher {
	return &Watcher{db: db, log: log, reread: rereadEvery, waiters: make(map[uuid.UUID][]*waiter), ended: make(chan struct{})}
}

// Run listens until ctx ends. It connects again when the connection is lost.
// When Run returns, all waits end, and each returns its request as it is.
func (w *Watcher) Run(ctx context.Context) error {
	defer w.once.Do(func() { close(w.ended) })
	listener := pg.Listener{DB: w.db, Channel: channel, Received: w.wake, Lost: func(ctx context.Context, err error) {
		w.log.WarnContext(ctx, "lost the connection that listens for finished requests; the requests that callers wait for are read every second", "error", err)
	}}
	return listener.Run(ctx)
}

// Finished wakes the callers that wait for the requests. Lanes of the same
// process call it; lanes of other processes call NotifyFinished.
func (w *Watcher) Finished(finished []requests.Request) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range finished {
		for _, waiting := range w.waiters[finished[i].RequestID] {
			w.enqueue(waiting)
		}
	}
}

func (w *Watcher) wake(payload string) {
	var finished []uuid.UUID
	for ; len(payload) >= idLength; payload = payload[idLength:] {
		var id uuid.UUID
		if _, err := base64.RawURLEncoding.Decode(id[:], []byte(payload[:idLength])); err != nil {
			w.log.Warn("ignored a notification that is not a list of ids", "error", err)
			return
		}
		finished = append(finished, id)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, id := range finished {
		for _, waiting := range w.waiters[id] {
			w.enqueue(waiting)
		}
	}
}

// enqueue adds a waiter to the next group that is read. The caller holds w.mu.
func (w *Watcher) enqueue(waiting *waiter) {
	if waiting.unread {
		return
	}
	waiting.unread = true
	w.unread = append(w.unread, waiting)
	if w.readers < readersMax {
		w.readers++
		go w.read()
	}
}

// read reads groups until no waiter is unread.
func (w *Watcher) read() {
	for {
		w.mu.Lock()
		group := w.unread[:min(len(w.unread), readMax)]
		w.unread = w.unread[len(group):]
		if len(group) == 0 {
			w.unread = nil
			w.readers--
			w.mu.Unlock()
			return
		}
		for _, waiting := range group {
			waiting.unread = false
		}
		w.mu.Unlock()
		w.readGroup(group)
	}
}

func (w *Watcher) readGroup(group []*waiter) {
	ctx, cancel := context.WithTimeout(context.Background(), readTimeout)
	defer cancel()
	refs, observed := make([]Ref, len(group)), make([]bool, len(group))
	w.mu.Lock()
	for i, waiting := range group {
		refs[i], observed[i] = waiting.ref, waiting.present
	}
	w.mu.Unlock()
	views, err := getAll(ctx, w.db, refs)
	if err == nil && slices.Contains(observed, true) {
		err = addPositions(ctx, w.db, views)
	}
	outage := pg.IsOutage(err) || ctx.Err() != nil
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, waiting := range group {
		view, exists := views[waiting.ref]
		switch {
		case outage && !observed[i]:
			// It is read again, and by its caller at the end.
		case err != nil:
			w.answer(waiting, requests.View{}, err)
		case !exists:
			w.answer(waiting, requests.View{}, ErrNotFound)
		case waiting.until(view.Status) || observed[i]:
			w.answer(waiting, view, nil)
		}
	}
}

// answer ends a wait, unless it has ended. The caller holds w.mu.
func (w *Watcher) answer(waiting *waiter, view requests.View, err error) {
	if w.leave(waiting) {
		waiting.view, waiting.err = view, err
		close(waiting.found)
	}
}

// leave removes a waiter, and reports whether it was there. The caller holds
// w.mu.
func (w *Watcher) leave(waiting *waiter) bool {
	id := waiting.ref.RequestID
	left := w.waiters[id]
	i := slices.Index(left, waiting)
	if i < 0 {
		return false
	}
	left = slices.Delete(left, i, i+1)
	if len(left) == 0 {
		delete(w.waiters, id)
	} else {
		w.waiters[id] = left
	}
	return true
}

// waitersMax is how many callers wait at one time. A further caller gets the
// request as it is. waitGrace is how long a wait may last beyond its timeout
// while the database is slow.
const (
	waitersMax = 10_000
	waitGrace  = 2 * time.Second
)

// Wait returns the request once until is true of its status, at the latest once it
// is finished. It returns the request as it is when the timeout is over, when Run has returned, or if too many
// callers wait.
//
// Errors: ErrNotFound, errors of the database, and ctx's error if ctx ends
// first.
func (w *Watcher) Wait(ctx context.Context, tenantID, requestID uuid.UUID, timeout time.Duration, until func(requests.Status) bool) (requests.View, error) {
	defer w.waiting.Add(-1)
	if w.waiting.Add(1) > waitersMax {
		timeout = 0
	}
	timeout = max(timeout, 0)
	ctx, cancel := context.WithTimeout(ctx, timeout+waitGrace)
	defer cancel()
	waiting := w.join(Ref{tenantID, requestID}, until)
	over := time.NewTimer(timeout)
	defer over.Stop()
	for {
		again := time.NewTimer(w.reread + rand.N(w.reread/2)) //nolint:gosec // it only spreads the reads
		ended := false
		select {
		case <-waiting.found:
		case <-again.C:
		case <-over.C:
			ended = true
		case <-w.ended:
			ended = true
		case <-ctx.Done():
			ended = true
		}
		again.Stop()
		w.mu.Lock()
		if ended {
			ended = w.leave(waiting) // else it was found meanwhile
		}
		select {
		case <-waiting.found:
			w.mu.Unlock()
			if waiting.view.Status == requests.Waiting {
				return Get(ctx, w.db, tenantID, requestID) // with its place in line
			}
			link(ctx, &waiting.view.Request)
			return waiting.view, waiting.err
		default:
		}
		if !ended {
			w.enqueue(waiting)
		}
		w.mu.Unlock()
		switch {
		case ended && ctx.Err() != nil:
			return requests.View{}, ctx.Err()
		case ended:
			return Get(ctx, w.db, tenantID, requestID) // counts the position once, not at each read
		}
	}
}

// join begins a wait. The watcher reads the request at once.
func (w *Watcher) join(ref Ref, until func(requests.Status) bool) *waiter {
	waiting := &waiter{ref: ref, until: until, found: make(chan struct{})}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.waiters[ref.RequestID] = append(w.waiters[ref.RequestID], waiting)
	w.enqueue(waiting)
	return waiting
}
