package frames

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgconn"
)

// Channel is the NOTIFY channel that carries frames.
const Channel = "holdfast_live"

// payloadMax is the number of bytes of a notification. The limit of Postgres is
// below 8,000.
const payloadMax = 7900

// Frame is one message of a channel, or a run of messages combined into one.
type Frame struct {
	TenantID uuid.UUID `json:"t"`
	// Channel is the name of the channel within the tenant:
	// projection.<name>.<key>.
	Channel string `json:"c"`
	// Event is the name of the event: rebuild, or the projection's name for its
	// deltas.
	Event string `json:"e"`
	// First and Version are the versions of the first and of the last event in
	// the frame. They are equal unless deltas were combined. A receiver whose
	// last version is below First-1 has missed events.
	First   int64 `json:"f"`
	Version int64 `json:"v"`
	// Payload is the delta, or the state after a rebuild. It is nil if the frame
	// is too large for a notification: the receiver then reads the state.
	Payload json.RawMessage `json:"p,omitempty"`
}

// Execer executes a statement: a pool or a connection.
type Execer interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

// notifySQL commits without waiting for the disk. Receivers of a lost
// notification read the state again.
const notifySQL = `
SELECT set_config('synchronous_commit', 'off', true), pg_notify('` + Channel + `', payload)
FROM unnest($1::text[]) AS payload`

// Send notifies every process of the frames, in their order. The caller calls it
// after the commit of the state that the frames describe.
func Send(ctx context.Context, db Execer, frames []Frame) error {
	payloads, err := Encode(frames)
	if err != nil || len(payloads) == 0 {
		return err
	}
	if _, err := db.Exec(ctx, notifySQL, payloads); err != nil {
		return fmt.Errorf("send %d frames: %w", len(frames), err)
	}
	return nil
}

// Encode returns the payloads of the notifications for the frames. A frame that
// is too large for one loses its payload.
func Encode(frames []Frame) ([]string, error) {
	var payloads []string
	piece := []byte{'['}
	for _, frame := range frames {
		text, err := json.Marshal(frame)
		if err == nil && len(text)+2 > payloadMax {
			frame.Payload = nil
			text, err = json.Marshal(frame)
		}
		if err != nil {
			return nil, fmt.Errorf("encode a frame of %s: %w", frame.Channel, err)
		}
		if len(piece)+len(text)+2 > payloadMax {
			payloads = append(payloads, string(append(piece, ']')))
			piece = []byte{'['}
		}
		if len(piece) > 1 {
			piece = append(piece, ',')
		}
		piece = append(piece, text...)
	}
	if len(piece) == 1 {
		return payloads, nil
	}
	return append(payloads, string(append(piece, ']'))), nil
}

// Decode returns the frames in the payload of a notification.
func Decode(payload string) ([]Frame, error) {
	var frames []Frame
	if err := json.Unmarshal([]byte(payload), &frames); err != nil {
		return nil, fmt.Errorf("decode a notification of frames: %w", err)
	}
	return frames, nil
}
