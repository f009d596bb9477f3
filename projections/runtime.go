package projections

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/internal/telemetry"
)

// Config is what a Runtime and a Feed use. The zero value of a field is its
// default.
type Config struct {
	// Broadcaster sends the frames; default Notifications.
	Broadcaster Broadcaster
	// Log receives what does not fail a call; default slog.Default.
	Log *slog.Logger
}

func (c Config) withDefaults(db *pgxpool.Pool) Config {
	if c.Broadcaster == nil {
		c.Broadcaster = Notifications{db}
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	return c
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
	c = c.withDefaults(db)
	return &Runtime[E, S, D]{db: db, p: p, out: newSender(c.Broadcaster, c.Log), log: c.Log}, nil
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
// Errors: *BroadcastError after the state is stored; *ApplyError, *JSONError,
// *ParkedError and *DatabaseError if nothing is. A delta that is delayed, because its
// channel had a frame in the last 50 ms, is sent later: if that fails, it is
// logged.
func (r *Runtime[E, S, D]) ApplyEvent(ctx context.Context, event E) (err error) {
	ctx, done := telemetry.Verb(ctx, "projections.apply")
	defer func() { done("", err) }()
	var change Change
	err = pgx.BeginTxFunc(ctx, r.db, readCommitted, func(tx pgx.Tx) error {
		change, err = r.applyTx(ctx, tx, event, lookUp)
		return err
	})
	if err != nil {
		return typed(err, "apply an event to "+r.p.Name)
	}
	return r.Broadcast(ctx, change)
}

// ApplyEventTx is ApplyEvent in the caller's transaction, which must be READ
// COMMITTED, else ErrIsolation. The caller passes the change to Broadcast after
// the commit. A caller that applies several events in one transaction sorts them
// by (tenant, projection, key), each by its bytes as Go compares strings, so
// that it cannot deadlock with a feed or with another such caller.
func (r *Runtime[E, S, D]) ApplyEventTx(ctx context.Context, tx pgx.Tx, event E) (Change, error) {
	change, err := r.applyTx(ctx, tx, event, queueLevel)
	return change, typed(err, "apply an event to "+r.p.Name)
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
// Error: *BroadcastError, which is also logged.
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
// Errors: *JSONError if the stored state is not of type S; *DatabaseError.
func (r *Runtime[E, S, D]) Read(ctx context.Context, key Key) (state S, found bool, err error) {
	var stored row
	err = r.db.QueryRow(ctx, getSQL, key.TenantID, r.p.Name, key.Key).Scan((*[]byte)(&stored.state), &stored.version, &stored.position)
	if errors.Is(err, pgx.ErrNoRows) {
		return state, false, nil
	}
	if err != nil {
		return state, false, typed(err, "read a state of "+r.p.Name)
	}
	if err := r.decode(key, stored, &state); err != nil {
		return state, false, err
	}
	return state, true, nil
}

// decode reads the stored state.
func (r *Runtime[E, S, D]) decode(key Key, stored row, state *S) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &JSONError{r.p.Name, key, fmt.Errorf("read the stored state: panic: %v", p)}
		}
	}()
	if err := json.Unmarshal(stored.state, state); err != nil {
		return &JSONError{r.p.Name, key, fmt.Errorf("read the stored state: %w", err)}
	}
	return nil
}

// ReadRequired is Read for a key that must have a state, else ErrStateNotFound.
func (r *Runtime[E, S, D]) ReadRequired(ctx context.Context, key Key) (S, error) {
	state, found, err := r.Read(ctx, key)
	if err == nil && !found {
		err = &NotFoundError{r.p.Name, key}
	}
	return state, err
}

// typed makes any error that is not one of this package's a *DatabaseError.
func typed(err error, action string) error {
	if err == nil || errors.Is(err, ErrBehind) {
		return err
	}
	for _, own := range []any{new(*DatabaseError), new(*ParkedError), new(*JSONError), new(*ApplyError), new(*BroadcastError)} {
		if errors.As(err, own) {
			return err
		}
	}
	return &DatabaseError{Action: action, Err: err}
}
