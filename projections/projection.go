package projections

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/frames"
)

// Key names one state of a projection.
type Key struct {
	TenantID uuid.UUID
	// Key has 1 to 256 characters of UTF-8 without control characters. The
	// tenant is not part of it.
	Key string
}

// Limits of names and keys.
const (
	nameMax = 64
	keyMax  = 256
)

// Projection is how events of type E are folded into states of type S, one for
// each key, and into deltas of type D. The zero value of an optional field is
// its default.
//
// States and deltas are stored and sent in their JSON form. What the JSON form
// of a state leaves out is lost between two events.
type Projection[E, S, D any] struct {
	// Name is lower-case words joined by dots, at most 64 characters:
	// "reservations.counters". No projection's name may be the beginning of
	// another one's: "a" and "a.b" would share channels.
	Name string
	// Key returns the key of the event's state. An event with the zero Key is
	// not one of this projection, and is left out.
	Key func(E) Key
	// Apply folds the event into the state, which is the zero value for a new
	// key, and returns the delta for the clients. It must be pure: the result
	// depends on its arguments only, and it keeps no reference to them.
	Apply func(*S, E) D
	// SnapshotInterval is how many events of a key are folded at most before
	// the state is written; default 100.
	SnapshotInterval int
	// EventName is the event of the delta's frames; default "delta".
	EventName string
	// Coalesce combines the deltas of two successive runs of events into the
	// delta of both; nil if deltas cannot be combined. With it, a channel sends
	// at most 20 frames per second. It must only be set for deltas with absolute
	// values: a client may apply a combined delta to the state in the middle of
	// its run.
	Coalesce func(a, b D) D
	// Source turns audit records into events, for a projection that a Feed
	// feeds; else nil. Projections with the same Source share its events.
	Source *Source[E]
}

// Source turns audit records into events. A feed decodes each record once for
// all projections that share the Source.
type Source[E any] struct {
	// Decode returns the record's event, false if it has no event.
	Decode func(*audit.Record) (E, bool)
}

// Frame is one message of a live channel.
type Frame = frames.Frame

// The events of frames.
const (
	eventSnapshot = "snapshot"
	eventRebuild  = "rebuild"
	eventDelta    = "delta"
)

// Channel returns the name of the live channel of a key within its tenant:
// projection.<name>.<key>.
func Channel(name, key string) string { return channelPrefix + name + "." + key }

const channelPrefix = "projection."

// places returns the names and keys that a channel can stand for, the longest
// name last. Names and keys both may contain dots.
func places(channel string) (found [][2]string) {
	rest, ok := strings.CutPrefix(channel, channelPrefix)
	if !ok {
		return nil
	}
	for at := range rest {
		if at > nameMax {
			break
		}
		if rest[at] != '.' {
			continue
		}
		name, key := rest[:at], rest[at+1:]
		if !nameForm.MatchString(name) {
			break
		}
		if checkKey(key) == nil {
			found = append(found, [2]string{name, key})
		}
	}
	return found
}

var nameForm = regexp.MustCompile(`^[a-z0-9_]+(\.[a-z0-9_]+)*$`)

func (p Projection[E, S, D]) withDefaults() (Projection[E, S, D], error) {
	p.SnapshotInterval = cmp.Or(p.SnapshotInterval, 100)
	p.EventName = cmp.Or(p.EventName, eventDelta)
	switch {
	case !nameForm.MatchString(p.Name) || len(p.Name) > nameMax:
		return p, fmt.Errorf("projection: name %q: want lower-case words joined by dots, at most %d characters", p.Name, nameMax)
	case p.Key == nil || p.Apply == nil:
		return p, fmt.Errorf("projection: %s has no Key or no Apply", p.Name)
	case p.SnapshotInterval < 1 || p.SnapshotInterval > 10_000:
		return p, fmt.Errorf("projection: %s: want 1 ≤ snapshot interval (%d) ≤ 10000", p.Name, p.SnapshotInterval)
	case p.EventName == eventSnapshot || p.EventName == eventRebuild:
		return p, fmt.Errorf("projection: %s: %s is not a name for deltas", p.Name, p.EventName)
	}
	return p, nil
}

func checkKey(key string) error {
	if key == "" || len(key) > 4*keyMax || utf8.RuneCountInString(key) > keyMax || !utf8.ValidString(key) || strings.ContainsFunc(key, unicode.IsControl) {
		return errors.New("want 1 to 256 characters of UTF-8 without control characters")
	}
	return nil
}
