package pgtest

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

const clonePrefix = "holdfast_test_"

// clone makes a database from the template.
func (s *server) clone(ctx context.Context) (string, error) {
	name := s.ownName(s.clones.Add(1))
	sql := "CREATE DATABASE " + quote(name) + " TEMPLATE " + quote(s.template) + s.clauses
	if _, err := s.admin.Exec(ctx, sql); err != nil {
		return "", fmt.Errorf("create database %s: %w", name, err)
	}
	return name, nil
}

// ownName is the name of this process's nth database, which contains the
// process's owner number.
func (s *server) ownName(n int64) string { return fmt.Sprintf("%s%08x_%d", clonePrefix, s.owner, n) }

// drop removes a database and ends its sessions. A missing database is no
// error.
func (s *server) drop(ctx context.Context, name string) error {
	if _, err := s.admin.Exec(ctx, "DROP DATABASE IF EXISTS "+quote(name)+" WITH (FORCE)"); err != nil {
		return fmt.Errorf("drop database %s: %w", name, err)
	}
	return nil
}

func quote(name string) string { return pgx.Identifier{name}.Sanitize() }

// ownerLocks is the first half of the advisory locks that mark the running test
// processes.
const ownerLocks = 0x68667467 // "hftg"

const claimSQL = `SELECT pg_advisory_lock_shared($1, $2)`

// claim marks this process as running while the connection of s.keeper is open.
func (s *server) claim(ctx context.Context) error {
	if _, err := s.keeper.Exec(ctx, claimSQL, int32(ownerLocks), int32(s.owner)); err != nil {
		return fmt.Errorf("mark the test process: %w", err)
	}
	return nil
}

// orphansSQL reads the databases before the locks, which are visible in every
// database of the server. A process takes its lock before it makes its first
// database.
const orphansSQL = `
SELECT datname
FROM pg_database
WHERE starts_with(datname, $1)
    AND NOT EXISTS (
        SELECT FROM pg_locks
        WHERE locktype = 'advisory'
            AND classid = $2
            AND starts_with(datname, $1 || lpad(to_hex(objid::bigint), 8, '0') || '_')
    )
LIMIT 1000`

// dropOrphans drops the databases of processes that died before they could drop
// them.
func (s *server) dropOrphans(ctx context.Context) error {
	rows, err := s.admin.Query(ctx, orphansSQL, clonePrefix, uint32(ownerLocks))
	if err != nil {
		return fmt.Errorf("list orphaned databases: %w", err)
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return fmt.Errorf("list orphaned databases: %w", err)
	}
	for _, name := range names {
		if err := s.drop(ctx, name); err != nil {
			return err
		}
	}
	return nil
}
