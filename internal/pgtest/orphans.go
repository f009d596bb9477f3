package pgtest

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
)

// ownerLocks is the first half of the advisory locks that say which test processes live.
const ownerLocks = 0x68667467 // "hftg"

const claimSQL = `SELECT pg_advisory_lock_shared($1, $2)`

// claim marks this process alive for as long as the keeper's connection lasts.
func (s *server) claim(ctx context.Context) error {
	if _, err := s.keeper.Exec(ctx, claimSQL, int32(ownerLocks), int32(s.owner)); err != nil {
		return fmt.Errorf("mark the test process: %w", err)
	}
	return nil
}

const (
	listClonesSQL = `SELECT datname FROM pg_database WHERE starts_with(datname, $1) ORDER BY datname LIMIT 1000`
	tryOwnerSQL   = `SELECT pg_try_advisory_xact_lock($1, $2)`
)

// dropOrphans drops the databases of processes whose lock is free: they died before they could.
func (s *server) dropOrphans(ctx context.Context) error {
	rows, err := s.admin.Query(ctx, listClonesSQL, clonePrefix)
	if err != nil {
		return fmt.Errorf("list test databases: %w", err)
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return fmt.Errorf("list test databases: %w", err)
	}
	for _, name := range names {
		owner, ok := ownerOf(name)
		if !ok {
			continue
		}
		var dead bool
		if err := s.admin.QueryRow(ctx, tryOwnerSQL, int32(ownerLocks), int32(owner)).Scan(&dead); err != nil {
			return fmt.Errorf("ask for the owner of %s: %w", name, err)
		}
		if dead {
			if err := s.drop(ctx, name); err != nil {
				return err
			}
		}
	}
	return nil
}

func ownerOf(name string) (uint32, bool) {
	owner, _, found := strings.Cut(strings.TrimPrefix(name, clonePrefix), "_")
	n, err := strconv.ParseUint(owner, 16, 32)
	return uint32(n), found && err == nil
}
