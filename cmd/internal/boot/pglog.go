package boot

import (
	"bytes"
	"context"
	"log/slog"
	"slices"
	"sync/atomic"
)

// postgresLog passes on what a private Postgres logs, a line at a time: at debug, or at warn what it complains of. The
// server writes whole lines.
type postgresLog struct {
	log *slog.Logger
	// stopping is set before this process stops the server.
	stopping *atomic.Bool
}

// complaints are how a line begins that somebody should read, unless it tells of something ordinary: a server that
// starts turns callers away, and a statement is cancelled when the caller it was for has gone.
var (
	complaints = [][]byte{[]byte("WARNING:  "), []byte("ERROR:  "), []byte("FATAL:  "), []byte("PANIC:  ")}
	ordinary   = [][]byte{[]byte("the database system is starting up"), []byte("canceling statement due to user request")}
	// farewells are what a server that is stopped says to its sessions and to new callers.
	farewells = [][]byte{[]byte("due to administrator command"), []byte("the database system is shutting down")}
)

// Write logs each line of p.
func (l postgresLog) Write(p []byte) (int, error) {
	for line := range bytes.Lines(p) {
		level := slog.LevelDebug
		farewell := l.stopping.Load() && containsAny(line, farewells)
		if containsAny(line, complaints) && !containsAny(line, ordinary) && !farewell {
			level = slog.LevelWarn
		}
		l.log.Log(context.Background(), level, "Postgres logged a line", "line", string(bytes.TrimSpace(line)))
	}
	return len(p), nil
}

func containsAny(line []byte, texts [][]byte) bool {
	return slices.ContainsFunc(texts, func(text []byte) bool { return bytes.Contains(line, text) })
}
