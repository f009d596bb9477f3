package live

import (
	"encoding/json"

	"github.com/holdfast/holdfast/internal/frames"
)

// The events that have the same name in every channel. A projection names its
// deltas.
const (
	// Snapshot is the state of a channel. It replaces all that a subscriber
	// knows of the channel, even if its version is lower.
	Snapshot = "snapshot"
	// Rebuild is the state after a projection was folded again.
	Rebuild = "rebuild"
	// errorEvent reports a message of the client that had no effect.
	errorEvent = "error"
)

// Frame is one message of a channel.
type Frame struct {
	Channel string
	// Event is Snapshot, Rebuild, or the name of a delta.
	Event string
	// First and Version are the versions of the first and of the last event in
	// the frame. They differ only if deltas were combined. Such a delta can be
	// applied to any state from version First-1 to Version.
	First, Version int64
	// Payload is the state or the delta; null for a channel without a state,
	// whose version is 0.
	Payload json.RawMessage

	text []byte // the frame as a client receives it
}

// frameJSON is a frame as a client receives it.
type frameJSON struct {
	Channel      string          `json:"channel"`
	Event        string          `json:"event"`
	FirstVersion int64           `json:"first_version,omitempty"`
	Version      int64           `json:"version"`
	Payload      json.RawMessage `json:"payload"`
}

// errorJSON is the response to a message of the client that had no effect.
type errorJSON struct {
	Channel string `json:"channel"`
	Event   string `json:"event"`
	Code    string `json:"code"`
	Detail  string `json:"detail"`
}

// heartbeatText shows a client that its connection works.
var heartbeatText = []byte(`{"event":"heartbeat"}`)

// newFrame returns the frame of a notification, encoded once for all
// subscribers. Its payload is nil if the notification had none, or none that is
// valid JSON.
func newFrame(sent frames.Frame) Frame {
	f := Frame{Channel: sent.Channel, Event: sent.Event, First: sent.First, Version: sent.Version, Payload: sent.Payload}
	if f.Payload == nil {
		return f
	}
	text := frameJSON{Channel: f.Channel, Event: f.Event, Version: f.Version, Payload: f.Payload}
	if f.First < f.Version {
		text.FirstVersion = f.First
	}
	var err error
	if f.text, err = json.Marshal(text); err != nil {
		f.Payload = nil
	}
	return f
}

// newSnapshot returns a state of the channel.
func newSnapshot(channel string, version int64, state json.RawMessage) Frame {
	return newState(Snapshot, channel, version, state)
}

func newState(event, channel string, version int64, state json.RawMessage) Frame {
	if state == nil {
		state = json.RawMessage("null")
	}
	return newFrame(frames.Frame{Channel: channel, Event: event, First: version, Version: version, Payload: state})
}

// begins reports whether the frame has the first event of a state. If the
// channel had a state before, that one was deleted.
func (f *Frame) begins() bool { return f.First == 1 }

// readState is a state that was read, as the frames that it is sent as.
type readState struct {
	snapshot Frame
	rebuild  *Frame // made when it is first needed
}

// asRebuild returns the state as the event rebuild.
func (r *readState) asRebuild() *Frame {
	if r.rebuild == nil {
		f := newState(Rebuild, r.snapshot.Channel, r.snapshot.Version, r.snapshot.Payload)
		r.rebuild = &f
	}
	return r.rebuild
}

// size is the number of bytes that a queued frame counts as. Subscribers share
// the bytes of a frame, so this counts more than is used.
func (f *Frame) size() int { return len(f.text) }
