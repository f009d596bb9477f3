package boot

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// seldomEvery is how often a message is logged.
const seldomEvery = time.Second

// seldom passes on each message at most once each seldomEvery, if it is not above a level. Of those that come in between
// it passes on the latest when that time is over, with the number of the others as left_out.
type seldom struct {
	slog.Handler
	most    slog.Level
	windows *windows
}

func newSeldom(next slog.Handler, most slog.Level) slog.Handler {
	return seldom{next, most, &windows{open: make(map[string]*window)}}
}

// windows are the messages of the last seldomEvery. There are as many as the code that logs has.
type windows struct {
	mu   sync.Mutex
	open map[string]*window
}

// window is how often a message came since it was logged, and its latest record.
type window struct {
	count  int
	latest slog.Record
	next   slog.Handler
}

func (h seldom) Handle(ctx context.Context, r slog.Record) error {
	if r.Level > h.most {
		return h.Handler.Handle(ctx, r)
	}
	h.windows.mu.Lock()
	defer h.windows.mu.Unlock()
	if s := h.windows.open[r.Message]; s != nil {
		s.count++
		s.latest, s.next = r.Clone(), h.Handler
		return nil
	}
	h.windows.open[r.Message] = new(window)
	time.AfterFunc(seldomEvery, func() { h.windows.over(r.Message) })
	return h.Handler.Handle(ctx, r)
}

// over ends a message's time. If more records came in it, it logs the latest, and the next time begins.
func (w *windows) over(message string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	ended := w.open[message]
	if ended.count == 0 {
		delete(w.open, message)
		return
	}
	w.open[message] = new(window)
	time.AfterFunc(seldomEvery, func() { w.over(message) })
	if ended.count > 1 {
		ended.latest.AddAttrs(slog.Int("left_out", ended.count-1))
	}
	_ = ended.next.Handle(context.Background(), ended.latest) // a failure of the log cannot be logged
}

func (h seldom) WithAttrs(attrs []slog.Attr) slog.Handler {
	return seldom{h.Handler.WithAttrs(attrs), h.most, h.windows}
}

func (h seldom) WithGroup(name string) slog.Handler {
	return seldom{h.Handler.WithGroup(name), h.most, h.windows}
}
