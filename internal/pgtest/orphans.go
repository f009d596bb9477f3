package pgtest

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

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
