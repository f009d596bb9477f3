package boot

import (
	"bytes"
	"context"
	"log/slog"
)

// postgresLog passes on what a private Postgres logs, a line at a time: at debug, or at warn what it complains of. The
// server writes whole lines.
type postgresLog struct{ log *slog.Logger }

// complaints are how a line begins that somebody should read. While the server starts it turns callers away; that is its
// ordinary doing.
var (
	complaints = [][]byte{[]byte("WARNING:  "), []byte("ERROR:  "), []byte("FATAL:  "), []byte("PANIC:  ")}
	starting   = []byte("the database system is starting up")
)

// Write logs each line of p.
func (l postgresLog) Write(p []byte) (int, error) {
	for line := range bytes.Lines(p) {
		level := slog.LevelDebug
		for _, complaint := range complaints {
			if bytes.Contains(line, complaint) && !bytes.Contains(line, starting) {
				level = slog.LevelWarn
			}
		}
		l.log.Log(context.Background(), level, "Postgres logged a line", "line", string(bytes.TrimSpace(line)))
	}
	return len(p), nil
}
