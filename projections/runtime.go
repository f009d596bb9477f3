package projections

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/internal/frames"
	"github.com/holdfast/holdfast/internal/pg"
	"github.com/holdfast/holdfast/internal/telemetry"
)

// Config is what a Runtime and a Feed use. The zero value of a field is its
// default.
type Config struct {
	// Send sends frames, in their order, to all processes that serve live
	// channels; by default as notifications of Postgres.
	Send func(ctx context.Context, frames []Frame) error
	// Log receives what does not fail a call; default slog.Default.
	Log *slog.Logger

	// What follows bounds a Feed.

	// Batch is how many records are folded in one transaction at most; default
	// 2000. While deliveries take longer than the lease, the feed uses smaller
	// ones.
	Batch int
	// Lease is how long a delivery may take, and how long the feed pauses after
	// the process that runs it has died; default 3 s.
	Lease time.Duration
	// Pause is the time between two deliveries while the feed keeps up, so that
	// several small ones become one; default 40 ms.
	Pause time.Duration
}

func (c Config) withDefaults(db *pgxpool.Pool) (Config, error) {
	if c.Send == nil {
		c.Send = func(ctx context.Context, list []Frame) error { return frames.Send(ctx, db, list) }
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	c.Batch = cmp.Or(c.Batch, 2000)
	c.Lease = cmp.Or(c.Lease, 3*time.Second)
	c.Pause = cmp.Or(c.Pause, 40*time.Millisecond)
	if c.Batch < 1 || c.Batch > 10_000 || c.Pause < 0 || c.Lease < 2*c.Pause {
		return c, fmt.Errorf("projection: want 1 ≤ batch (%d) ≤ 10000, 0 ≤ 2 × pause (%s) ≤ lease (%s)", c.Batch, c.Pause, c.Lease)
	}
	return c, nil
}

// Runtime keeps the states of one projection. It is safe for concurrent use,
// and any number of processes may have one for the same projection.
type Runtime[E, S, D any] struct {
	db  *pgxpool.Pool
	p   Projection[E, S, D]
	out *sender
	log *slog.Logger
}

// New makes the runtime of a projection. The error names the field that is
// invalid.
func New[E, S, D any](db *pgxpool.Pool, p Projection[E, S, D], c Config) (*Runtime[E, S, D], error) {
	p, err := p.withDefaults()
	if err != nil {
		return nil, err
	}
	c, err = c.withDefaults(db)
	if err != nil {
		return nil, err
	}
	return &Runtime[E, S, D]{db: db, p: p, out: newSender(c.Send, c.Log), log: c.Log}, nil
}

// Change is what an event changed, to be sent after the commit.
type Change struct {
	messages []message
	applied  int // events
}

// ApplyEvent folds one event into the state of its key, stores the state with
// the next version, and sends the delta. It is for events that no Feed reads,
// and for tests. It is not idempotent: each call counts.
//
// It locks the row of the key.
//
// Errors: ErrBroadcast after the state is stored; ErrApply, ErrJSON, ErrParked and
// the database's if nothing is. A delta that is delayed, because its channel had
// a frame in the last 50 ms, is sent later: if that fails, it is logged.
func (r *Runtime[E, S, D]) ApplyEvent(ctx context.Context, event E) (err error) {
	ctx, done := telemetry.Verb(ctx, "projections.apply")
	defer func() { done("", err) }()
	var change Change
	err = pgx.BeginTxFunc(ctx, r.db, readCommitted, func(tx pgx.Tx) error {
		change, err = r.applyTx(ctx, tx, event, pg.QueueLookUp)
		return err
	})
	if err != nil {
		return failed("apply an event to "+r.p.Name, err)
	}
	return r.Broadcast(ctx, change)
}

// ApplyEventTx is ApplyEvent in the caller's transaction, which must be READ
// COMMITTED, and else gets an error. The caller passes the change to Broadcast
// after the commit. A caller that applies several events in one transaction sorts them
// by (tenant, projection, key), each by its bytes as Go compares strings, so
// that it cannot deadlock with a feed or with another such caller.
func (r *Runtime[E, S, D]) ApplyEventTx(ctx context.Context, tx pgx.Tx, event E) (Change, error) {
	change, err := r.applyTx(ctx, tx, event, pg.QueueIsolation)
	return change, failed("apply an event to "+r.p.Name, err)
}

func (r *Runtime[E, S, D]) applyTx(ctx context.Context, tx pgx.Tx, event E, before func(*pgx.Batch)) (Change, error) {
	key, err := r.keyOf(event)
	if err != nil || key == (Key{}) {
		return Change{}, err
	}
	at := []place{{r.p.Name, key}}
	rows, err := openTx(ctx, tx, at, before)
	if err != nil {
		return Change{}, err
	}
	f := r.fold(key, rows[0], []numbered[E]{{0, event}})
	switch {
	case f.failure == nil:
		err = writeTx(ctx, tx, at, []row{f.row})
	case rows[0].empty(): // the row was made for an event that failed
		err = cmp.Or(writeTx(ctx, tx, at, rows), f.failure)
	default:
		err = f.failure
	}
	return Change{f.messages, f.applied}, err
}

// Broadcast sends changes whose transactions are committed.
//
// Error: ErrBroadcast, which is also logged.
func (r *Runtime[E, S, D]) Broadcast(ctx context.Context, changes ...Change) error {
	var messages []message
	for _, c := range changes {
		messages = append(messages, c.messages...)
		telemetry.ProjectionApplied(ctx, r.p.Name, c.applied)
	}
	err := r.out.send(ctx, messages)
	if err != nil {
		r.log.WarnContext(ctx, "frames were not sent", "projection", r.p.Name, "error", err)
	}
	return err
}

// Read returns the state of a key, false if it has none. It locks nothing, and
// sees a state before or after an event, never in between.
//
// Errors: ErrJSON if the stored state is not of type S; the database's.
func (r *Runtime[E, S, D]) Read(ctx context.Context, key Key) (state S, found bool, err error) {
	var stored row
	err = r.db.QueryRow(ctx, getSQL, key.TenantID, r.p.Name, key.Key).Scan((*[]byte)(&stored.state))
	if errors.Is(err, pgx.ErrNoRows) {
		return state, false, nil
	}
	if err != nil {
		return state, false, failed("read a state of "+r.p.Name, err)
	}
	if err := r.decode(key, stored, &state); err != nil {
		return state, false, err
	}
	return state, true, nil
}

// unfit is the error of a key or a state that is not storable.
func (r *Runtime[E, S, D]) unfit(key Key, err error) error {
	return &Error{ErrJSON, r.p.Name, key, err}
}

// panicked is the error of the projection's own code.
func (r *Runtime[E, S, D]) panicked(p any) error {
	return &Error{Kind: ErrApply, Name: r.p.Name, Err: fmt.Errorf("%v", p)}
}

// decode reads the stored state.
func (r *Runtime[E, S, D]) decode(key Key, stored row, state *S) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = r.unfit(key, fmt.Errorf("read the stored state: panic: %v", p))
		}
	}()
	if err := json.Unmarshal(stored.state, state); err != nil {
		return r.unfit(key, fmt.Errorf("read the stored state: %w", err))
	}
	return nil
}

// ReadRequired is Read for a key that must have a state, else ErrStateNotFound.
func (r *Runtime[E, S, D]) ReadRequired(ctx context.Context, key Key) (S, error) {
	state, found, err := r.Read(ctx, key)
	if err == nil && !found {
		err = &Error{Kind: ErrStateNotFound, Name: r.p.Name, Key: key}
	}
	return state, err
}
