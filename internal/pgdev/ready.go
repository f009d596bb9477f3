package pgdev

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/holdfast/holdfast/internal/sleep"
)

const readyInterval = 10 * time.Millisecond

// waitReady waits until the server accepts a connection with the password.
func (s *Server) waitReady(ctx context.Context) error {
	tick := time.NewTicker(readyInterval)
	defer tick.Stop()
	var last error
	for {
		select {
		case <-s.done:
			if s.dataInUse() {
				return fmt.Errorf("another Postgres runs on %s: stop it, or choose another folder (%s)", s.home.data, s.log.reason())
			}
			return fmt.Errorf("postgres on %s ended at once: %s", s.home.data, s.log.reason())
		case <-ctx.Done():
			return fmt.Errorf("start postgres on %s: %w (log: %s)", s.home.data, errors.Join(context.Cause(ctx), last), s.log.reason())
		case <-tick.C:
			if last = s.probe(ctx); last == nil {
				return nil
			}
		}
	}
}

func (s *Server) probe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	conn, err := pgconn.Connect(ctx, s.URL("postgres"))
	if err != nil {
		return err
	}
	return conn.Close(ctx)
}

// mayRetry reports whether a failed launch is worth another one, and waits a
// moment before it returns. Another process may have taken the port. Or the
// previous server on this data folder, killed with its process, has not ended
// yet. This process has the folder's lock, so no other process keeps that
// server running.
func (s *Server) mayRetry(ctx context.Context) bool {
	text := s.log.String()
	if strings.Contains(text, "could not bind") || strings.Contains(text, "could not create any TCP/IP sockets") {
		return ctx.Err() == nil
	}
	if !s.dataInUse() || s.home.launchesLeft <= 0 {
		return false
	}
	s.home.launchesLeft--
	return sleep.For(ctx, 100*time.Millisecond) == nil
}

// dataInUse reports whether the launch failed because a postmaster, or children
// of a dead one, use the data.
func (s *Server) dataInUse() bool {
	text := s.log.String()
	return strings.Contains(text, `lock file "postmaster.pid" already exists`) || strings.Contains(text, "is still in use")
}

// freePort returns a port that is free now. Another process may take it before
// Postgres does; then the launch is repeated.
func freePort() (int, error) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("find a free port: %w", err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().(*net.TCPAddr).Port, nil
}
