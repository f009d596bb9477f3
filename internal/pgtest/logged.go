package pgtest

import (
	"bytes"
	"context"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/internal/pgdev"
	"github.com/holdfast/holdfast/migrations"
)

// ServerLog is the log of a server that only one test uses.
type ServerLog struct {
	t  testing.TB
	db *pgxpool.Pool

	mu      sync.Mutex
	text    bytes.Buffer
	written chan struct{} // closed at the next write
}

// NewLogged is [New] on a server that only this test uses. It also returns the
// log of that server from then on.
func NewLogged(t testing.TB) (*pgxpool.Pool, *ServerLog) {
	t.Helper()
	l := &ServerLog{t: t, written: make(chan struct{})}
	l.db = Open(t, StartServer(t, pgdev.Options{Log: l}).URL("postgres"))
	if err := migrations.Up(t.Context(), l.db, nil); err != nil {
		t.Fatal(err)
	}
	_ = l.Errors()
	return l.db, l
}

// Write receives the log of the server.
func (l *ServerLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.written)
	l.written = make(chan struct{})
	return l.text.Write(p)
}

// markSQL writes a line to the log, behind everything logged before.
const markSQL = `DO $$ BEGIN RAISE WARNING 'all that came before is logged'; END $$`

var (
	logged     = []byte("all that came before is logged")
	errorLines = regexp.MustCompile(`(?m)^.* (ERROR|FATAL|PANIC):  .*$(\n.* (DETAIL|CONTEXT|STATEMENT):  .*$)*`)
)

// cancelled is the log message for a statement whose caller's context ended. It
// is usual when an intake or a lane ends.
const cancelled = "canceling statement due to user request"

// Errors returns what the server logged since the last call at level ERROR or
// above, each with its statement. It leaves out statements that their callers
// cancelled.
func (l *ServerLog) Errors() []string {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if _, err := l.db.Exec(ctx, markSQL); err != nil {
		l.t.Fatalf("mark the server's log: %v", err)
	}
	for {
		text, more := l.take()
		if text != nil {
			return slices.DeleteFunc(errorLines.FindAllString(string(text), -1), func(line string) bool {
				return strings.Contains(line, cancelled)
			})
		}
		select {
		case <-more:
		case <-ctx.Done():
			l.t.Fatal("the server does not write its log")
		}
	}
}

// take returns the log up to the mark, or nil if the mark is not written yet.
func (l *ServerLog) take() ([]byte, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !bytes.Contains(l.text.Bytes(), logged) {
		return nil, l.written
	}
	text := bytes.Clone(l.text.Bytes())
	l.text.Reset()
	return text, nil
}
