package projections

import (
	"errors"
	"fmt"

	"github.com/holdfast/holdfast/internal/pg"
)

// ErrStateNotFound means that a key has no state. The error is a
// *NotFoundError.
var ErrStateNotFound = errors.New("projection: no state")

// ErrBehind means that the events of a rebuild end before the position of the
// stored state, so that later records would be lost. Read the record again.
var ErrBehind = errors.New("projection: the state contains later records than the rebuild")

// ErrIsolation means that the caller's transaction is not READ COMMITTED.
var ErrIsolation = pg.ErrIsolation

// NotFoundError means that a key has no state. It is ErrStateNotFound.
type NotFoundError struct {
	Name string
	Key  Key
}

// Error names the projection and the key.
func (e *NotFoundError) Error() string {
	return fmt.Sprintf("projection: %s has no state for %q", e.Name, e.Key.Key)
}

// Is reports whether target is ErrStateNotFound.
func (e *NotFoundError) Is(target error) bool { return target == ErrStateNotFound }

// DatabaseError is an error of the database. Nothing was changed, unless it is
// the error of a COMMIT.
type DatabaseError struct {
	// Action is what failed, in words.
	Action string
	Err    error
}

// Error names the action.
func (e *DatabaseError) Error() string { return "projection: " + e.Action + ": " + e.Err.Error() }

// Unwrap returns the database's error.
func (e *DatabaseError) Unwrap() error { return e.Err }

// JSONError means that a state or a key cannot be stored, or that a stored
// state cannot be read as the projection's type. Nothing was changed.
type JSONError struct {
	Name string
	Key  Key
	Err  error
}

// Error names the projection and the key.
func (e *JSONError) Error() string {
	return fmt.Sprintf("projection: %s %q: %v", e.Name, e.Key.Key, e.Err)
}

// Unwrap returns the cause.
func (e *JSONError) Unwrap() error { return e.Err }

// ApplyError means that the projection's own Key or Apply panicked. Nothing was
// changed.
type ApplyError struct {
	Name  string
	Panic any
}

// Error names the projection and the panic.
func (e *ApplyError) Error() string {
	return fmt.Sprintf("projection: %s panicked: %v", e.Name, e.Panic)
}

// ParkedError means that the key is parked: events that cannot be folded have
// cost too much, and its state lacks all events since then. A rebuild of the key
// repairs it, unless the same events fail again. Nothing was changed.
type ParkedError struct {
	Name string
	Key  Key
	// Err is the error of the event that parked the key, nil if that was earlier.
	Err error
}

// Error names the projection, the key and the cause.
func (e *ParkedError) Error() string {
	text := fmt.Sprintf("projection: %s %q is parked until it is rebuilt", e.Name, e.Key.Key)
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

// Unwrap returns the cause.
func (e *ParkedError) Unwrap() error { return e.Err }

// BroadcastError means that the state is stored and its frame was not sent.
// Clients find the gap with the next frame, or when they read the state again.
type BroadcastError struct{ Err error }

// Error describes the failure.
func (e *BroadcastError) Error() string { return "projection: broadcast: " + e.Err.Error() }

// Unwrap returns the cause.
func (e *BroadcastError) Unwrap() error { return e.Err }
