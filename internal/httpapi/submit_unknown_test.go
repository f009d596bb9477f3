package httpapi

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast"
)

// The answer to an admission's commit is lost, and the request is decided
// before the second attempt reads it back. The answer to the call has the
// reservation, like every later one.
func TestDecidedBeforeAdmissionIsKnown(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.stock("shirt", `{"stock":1}`)
	s.loseAdmission("shirt", s.db, s.decide)
	first := s.call(http.StatusOK, "POST", "/v1/carts/c/items", `{"variant_id":"shirt","quantity":1}`)
	later := s.call(http.StatusOK, "GET", "/v1/requests/"+first.text(t, "request_id"), "")
	if !bytes.Equal(first.body, later.body) || first.object(t)["reservation"] == nil {
		t.Errorf("the add was answered\n%s\nand the request is\n%s", first.body, later.body)
	}
}

// The same happens, and the reservation cannot be read. The answer is that the
// request was accepted.
func TestDecidedAndNotReadable(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.stock("shirt", `{"stock":1}`)
	var broken atomic.Bool
	config := s.db.Config()
	config.PrepareConn = func(context.Context, *pgx.Conn) (bool, error) {
		if broken.Load() {
			return true, errors.New("no connection")
		}
		return true, nil
	}
	calls, err := pgxpool.NewWithConfig(t.Context(), config)
	s.must(err)
	t.Cleanup(calls.Close)
	s.loseAdmission("shirt", calls, func() {
		s.decide()
		broken.Store(true)
	})
	first := s.call(http.StatusAccepted, "POST", "/v1/carts/c/items", `{"variant_id":"shirt","quantity":1}`)
	if first.text(t, "status") != "queued" {
		t.Errorf("the add was answered %s", first.body)
	}
}

// loseAdmission gives the service, whose calls use a pool, an intake whose first commit for the variant
// takes effect and is not answered. It calls then before the next attempt.
func (s *shop) loseAdmission(variant string, calls *pgxpool.Pool, then func()) {
	s.t.Helper()
	config := s.db.Config()
	dial := config.ConnConfig.DialFunc
	var lost atomic.Bool
	config.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		return &loser{Conn: conn, mark: variant, lost: &lost, then: then}, err
	}
	pool, err := pgxpool.NewWithConfig(s.t.Context(), config)
	s.must(err)
	s.t.Cleanup(pool.Close)
	// An attempt must not end, and the next one begin, while then runs.
	s.serveChanged(calls, func(c *holdfast.Config) {
		c.IntakePool, c.Intake.Committers, c.Intake.CommitTimeout, c.Intake.AttemptTimeout = pool, 1, time.Minute, time.Minute
	})
}

// loser is a connection that breaks once, when the answer to a message with the
// mark arrives.
type loser struct {
	net.Conn
	mark string
	lost *atomic.Bool
	then func()
}

func (l *loser) Write(p []byte) (int, error) {
	n, err := l.Conn.Write(p)
	if err != nil || !strings.Contains(string(p), l.mark) || l.lost.Swap(true) {
		return n, err
	}
	// The first byte of the server's answer shows that the pipeline has ended.
	if _, err := l.Conn.Read(make([]byte, 1)); err != nil {
		return 0, err
	}
	l.then()
	return n, l.Conn.Close()
}
