package projections

import (
	"errors"
	"fmt"
	"slices"
)

// The kinds of an [Error], for errors.Is. Nothing was changed, unless its comment
// mentions it.
var (
	// ErrStateNotFound means that the key has no state.
	ErrStateNotFound = errors.New("no state")
	// ErrJSON means that a state or a key cannot be stored, or that a stored state
	// cannot be read as the projection's type.
	ErrJSON = errors.New("not storable")
	// ErrApply means that the projection's own Key or Apply panicked.
	ErrApply = errors.New("panicked")
	// ErrParked means that the key is parked: events that cannot be folded have
	// cost too much, and its state lacks all events since then. A rebuild of the
	// key repairs it, unless the same events fail again. The cause is the error of
	// the event that parked the key, or none if that was earlier.
	ErrParked = errors.New("parked until it is rebuilt")
	// ErrBroadcast means that the state is stored and its frame was not sent.
	// Clients find the gap with the next frame, or when they read the state again.
	ErrBroadcast = errors.New("broadcast")
	// ErrBehind means that the events of a rebuild end before the position of the
	// stored state, so that later records would be lost. Read the record again.
	ErrBehind = errors.New("the state contains later records than the rebuild")
)

// Error is the error of a verb of this package.
type Error struct {
	// Kind is one of the kinds above; nil for an error of the database. After that
	// nothing was changed, unless it is the error of a COMMIT.
	Kind error
	// Name and Key are the projection and the key, if it is the error of one.
	Name string
	Key  Key
	// Err is the cause, nil for none.
	Err error
}

// Error names the projection, the key, the kind and the cause.
func (e *Error) Error() string {
	text := "projection: "
	if e.Name != "" {
		text += e.Name + " "
	}
	if e.Key.Key != "" {
		text += fmt.Sprintf("%q ", e.Key.Key)
	}
	switch {
	case e.Err == nil:
		return text + e.Kind.Error()
	case e.Kind == nil:
		return text + e.Err.Error()
	default:
		return text + e.Kind.Error() + ": " + e.Err.Error()
	}
}

// Unwrap returns the kind and the cause.
func (e *Error) Unwrap() []error {
	return slices.DeleteFunc([]error{e.Kind, e.Err}, func(err error) bool { return err == nil })
}

// failed returns the error of an action: one of the database, unless it is one of
// this package's already.
func failed(action string, err error) error {
	if err == nil || errors.As(err, new(*Error)) {
		return err
	}
	return &Error{Err: fmt.Errorf("%s: %w", action, err)}
}
