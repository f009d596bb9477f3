package pgtest

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	poolSize     = 8
	cloneTimeout = 5 * time.Minute // many tests may clone at once
	dropTimeout  = 5 * time.Minute
	closeTimeout = 10 * time.Second
)

// New is [Open] on a fresh, migrated database, which is dropped when the test
// ends.
func New(t testing.TB) *pgxpool.Pool {
	t.Helper()
	return Open(t, URL(t))
}

// URL returns the address of a fresh, migrated database, for tests that start
// programs. The database is dropped when the test ends, even if programs are
// still connected.
func URL(t testing.TB) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), cloneTimeout)
	defer cancel()
	s, err := theServer()
	if err != nil {
		t.Fatalf("a test needs Postgres: %v", err)
	}
	name, err := s.clone(ctx)
	if err != nil {
		t.Fatalf("clone a database: %v", err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), dropTimeout)
		defer cancel()
		if err := s.drop(ctx, name); err != nil {
			t.Errorf("drop the test's database: %v", err)
		}
	})
	return s.url(name)
}

// Open returns a pool of at most 8 connections, which is closed when the test
// ends. The test fails if it did not release every connection.
func Open(t testing.TB, url string) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatalf("read the database's URL: %v", err)
	}
	config.MaxConns = poolSize
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	if err != nil {
		t.Fatalf("open a pool: %v", err)
	}
	t.Cleanup(func() { closePool(t, pool, closeTimeout) })
	return pool
}

// closePool waits a bounded time until all connections are released. The
// database is dropped even if some are not.
func closePool(t testing.TB, pool *pgxpool.Pool, patience time.Duration) {
	t.Helper()
	closed := make(chan struct{})
	go func() {
		pool.Close()
		close(closed)
	}()
	select {
	case <-closed:
	case <-time.After(patience):
		t.Errorf("the test kept %d connections of its pool", pool.Stat().AcquiredConns())
	}
}
