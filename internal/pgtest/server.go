package pgtest

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/internal/pgdev"
)

const (
	setupTimeout = 5 * time.Minute
	adminSize    = 4 // connections that clone and drop; more of them would wait for each other
)

// server is the server on which this process's tests have their databases.
type server struct {
	address  *url.URL // of some database; the path is replaced
	admin    *pgxpool.Pool
	template string
	owner    uint32    // identifies this process, in the names of its databases and as an advisory lock
	keeper   *pgx.Conn // has that lock; without a reference it would be collected and closed
	clones   atomic.Int64
	clauses  string // of CREATE DATABASE, those that the server supports
}

// theServer starts or opens the process's server, once. A failure is permanent.
var theServer = sync.OnceValues(func() (*server, error) {
	ctx, cancel := context.WithTimeout(context.Background(), setupTimeout)
	defer cancel()
	address, err := serverURL(ctx)
	if err != nil {
		return nil, err
	}
	return open(ctx, address)
})

// serverURL returns the address of the server to use. A private server is never
// stopped: it ends with the process.
func serverURL(ctx context.Context) (string, error) {
	for _, name := range []string{"HOLDFAST_TEST_DATABASE_URL", "DATABASE_URL"} {
		if address := os.Getenv(name); address != "" {
			return address, nil
		}
	}
	private, err := pgdev.Start(ctx, pgdev.Options{InMemory: true})
	if err != nil {
		return "", err
	}
	return private.URL("postgres"), nil
}

func open(ctx context.Context, address string) (*server, error) {
	parsed, err := url.Parse(address)
	if err != nil || !strings.HasPrefix(parsed.Scheme, "postgres") {
		return nil, fmt.Errorf("the test database's address must be a URL, postgres://…")
	}
	s := &server{address: parsed}
	config, err := pgxpool.ParseConfig(address)
	if err != nil {
		return nil, fmt.Errorf("read the test database's URL: %w", err)
	}
	config.MaxConns = adminSize
	if s.admin, err = pgxpool.NewWithConfig(ctx, config); err != nil {
		return nil, fmt.Errorf("open the test server: %w", err)
	}
	if err := s.signIn(ctx, config.ConnConfig); err != nil {
		s.close(ctx)
		return nil, err
	}
	return s, nil
}

// signIn takes the process's lock, drops the databases of dead processes, and
// makes the template if it is missing.
func (s *server) signIn(ctx context.Context, config *pgx.ConnConfig) error {
	var random [4]byte
	_, _ = rand.Read(random[:]) // never fails
	s.owner = binary.BigEndian.Uint32(random[:])
	var err error
	if s.keeper, err = pgx.ConnectConfig(ctx, config); err != nil {
		return fmt.Errorf("connect to the test server: %w", err)
	}
	if err := s.claim(ctx); err != nil {
		return err
	}
	if err := s.dropOrphans(ctx); err != nil {
		return err
	}
	return s.ensureTemplate(ctx)
}

// close closes the connections to the server. The process's own server lasts as
// long as the process.
func (s *server) close(ctx context.Context) {
	s.admin.Close()
	if s.keeper != nil {
		_ = s.keeper.Close(ctx)
	}
}

func (s *server) url(database string) string {
	u := *s.address
	u.Path = "/" + database
	return u.String()
}
