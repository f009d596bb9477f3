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
