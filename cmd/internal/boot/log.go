package boot

import (
	"context"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/holdfast/holdfast/internal/telemetry"
)

func newLog(w io.Writer, level slog.Level) *slog.Logger {
	return slog.New(telemetry.LogHandler(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: level})))
}

// riverEvery is how often River may tell the same thing.
const riverEvery = time.Second

// riverLog leaves out what River tells of its ordinary doing, and in an outage most of its complaints: each producer
// makes one at every poll.
func (p *Program) riverLog() *slog.Logger {
	h := seldom{p.Log.Handler(), slog.LevelWarn, &told{at: make(map[string]time.Time)}}
	return slog.New(h).With("component", "river")
}

// seldom passes on what is at least at its level, and each message at most once each riverEvery.
type seldom struct {
	slog.Handler
	level slog.Level
	told  *told
}

// told is when each message was passed on last. There are as many as the code that logs has.
type told struct {
	mu sync.Mutex
	at map[string]time.Time
}

func (h seldom) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= h.level && h.Handler.Enabled(ctx, level)
}

func (h seldom) Handle(ctx context.Context, r slog.Record) error {
	h.told.mu.Lock()
	again := r.Time.Sub(h.told.at[r.Message]) < riverEvery
	if !again {
		h.told.at[r.Message] = r.Time
	}
	h.told.mu.Unlock()
	if again {
		return nil
	}
	return h.Handler.Handle(ctx, r)
}

func (h seldom) WithAttrs(attrs []slog.Attr) slog.Handler {
	return seldom{h.Handler.WithAttrs(attrs), h.level, h.told}
}

func (h seldom) WithGroup(name string) slog.Handler {
	return seldom{h.Handler.WithGroup(name), h.level, h.told}
}
