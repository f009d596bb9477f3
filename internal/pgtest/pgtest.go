package pgtest

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	poolSize     = 8
	cloneTimeout = 2 * time.Minute // many tests may clone at once
	dropTimeout  = time.Minute
	closeTimeout = 10 * time.Second
)

// New returns a pool of at most 8 connections to a fresh, migrated database. When the test ends, the pool is closed and
// the database dropped; a connection that the test did not give back fails it.
func New(t testing.TB) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(URL(t))
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

// URL returns the address of a fresh, migrated database, for tests that start programs. The database is dropped when
// the test ends, whoever is still connected to it.
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

// closePool waits for the connections to come back, but not for ever; the database is dropped under those that do not.
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
