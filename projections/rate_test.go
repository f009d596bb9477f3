package projections

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// timed is a receiver of frames that keeps when each frame was sent.
type timed struct {
	begun time.Time

	mu     sync.Mutex
	at     map[string][]time.Duration
	frames map[string][]Frame
}

func (s *timed) Send(_ context.Context, frames []Frame) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range frames {
		s.at[f.Channel] = append(s.at[f.Channel], time.Since(s.begun))
		s.frames[f.Channel] = append(s.frames[f.Channel], f)
	}
	return nil
}

// A channel whose deltas can be combined has at most one frame per 50 ms. The
// frames cover every version once, the last one included, however many events
// there are. Another channel is not delayed.
func TestFrameRate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const events = 307
		sent := &timed{begun: time.Now(), at: make(map[string][]time.Duration), frames: make(map[string][]Frame)}
		out := newSender(sent.Send, slog.New(slog.DiscardHandler))
		send := func(channel string, version int64) {
			later := func(_, b any) any { return b }
			m := message{Frame: Frame{Channel: channel, First: version, Version: version}, delta: version, merge: later}
			if err := out.send(t.Context(), []message{m}); err != nil {
				t.Fatal(err)
			}
		}
		for version := range int64(events) {
			if version == 120 {
				send("other", 1)
			}
			send("one", version+1)
			<-time.After(time.Millisecond)
		}
		<-time.After(time.Second)
		synctest.Wait()
		sent.mu.Lock()
		defer sent.mu.Unlock()
		if at := sent.at["other"]; len(at) != 1 || at[0] != 120*time.Millisecond {
			t.Errorf("the other channel's frames are sent at %v", at)
		}
		// The timer of the first frame runs once per 50 ms.
		if n, want := len(sent.frames["one"]), 2+events/50; n != want {
			t.Errorf("%d frames at %v, want %d", n, sent.at["one"], want)
		}
		last := int64(0)
		for i, f := range sent.frames["one"] {
			if i > 0 && sent.at["one"][i]-sent.at["one"][i-1] < frameEvery {
				t.Errorf("frames are sent at %v", sent.at["one"])
			}
			if f.First != last+1 || string(f.Payload) != fmt.Sprint(f.Version) {
				t.Errorf("the frame from version %d to %d has %s and follows version %d", f.First, f.Version, f.Payload, last)
			}
			last = f.Version
		}
		if last != events {
			t.Errorf("the last frame has version %d, want %d", last, events)
		}
	})
}
