package pgtest

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/internal/pg"
	"github.com/holdfast/holdfast/migrations"
)

// templateKey is the advisory lock under which one process makes a template
// while the other processes wait.
const templateKey = 0x68667467746d706c // "hftgtmpl"

const (
	waitForTemplateSQL = `SELECT pg_advisory_xact_lock($1)`
	templateExistsSQL  = `SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)`
	serverSQL          = `
SELECT current_setting('server_version_num')::integer,
       EXISTS (SELECT FROM pg_settings WHERE name = 'data_directory' AND setting LIKE '/dev/shm/%')`
)

// ensureTemplate makes the template of this program's schema unless the server
// has it. The template gets its name when it is complete. From then on no
// session may connect to it, because a template in use cannot be cloned.
func (s *server) ensureTemplate(ctx context.Context) error {
	fingerprint, err := migrations.Fingerprint()
	if err != nil {
		return err
	}
	s.template = "holdfast_template_" + fingerprint
	if err := s.readServer(ctx); err != nil {
		return err
	}
	return pgx.BeginFunc(ctx, s.admin, func(tx pgx.Tx) error { // this transaction has the lock; the work uses other connections
		if _, err := tx.Exec(ctx, waitForTemplateSQL, int64(templateKey)); err != nil {
			return fmt.Errorf("wait for the template: %w", err)
		}
		var exists bool
		if err := tx.QueryRow(ctx, templateExistsSQL, s.template).Scan(&exists); err != nil {
			return fmt.Errorf("find the template: %w", err)
		}
		if exists {
			return nil
		}
		return s.makeTemplate(ctx)
	})
}

// makeTemplate works in a database with a name of this process until the
// template is complete, so that it is dropped like the process's other
// databases.
func (s *server) makeTemplate(ctx context.Context) error {
	unfinished := s.ownName(0)
	if _, err := s.admin.Exec(ctx, "CREATE DATABASE "+quote(unfinished)+" TEMPLATE template0"+s.clauses); err != nil {
		return fmt.Errorf("create database %s: %w", unfinished, err)
	}
	if err := migrate(ctx, s.url(unfinished)); err != nil {
		return err
	}
	if _, err := s.admin.Exec(ctx, "ALTER DATABASE "+quote(unfinished)+" WITH ALLOW_CONNECTIONS false"); err != nil {
		return fmt.Errorf("close the template: %w", err)
	}
	_, err := s.admin.Exec(ctx, "ALTER DATABASE "+quote(unfinished)+" RENAME TO "+quote(s.template))
	if isTaken(err) { // the lock is per database; a process that has it in another one was faster
		return s.drop(ctx, unfinished)
	}
	if err != nil {
		return fmt.Errorf("name the template: %w", err)
	}
	return nil
}

// isTaken reports whether a database has the name already, or got it at the
// same moment.
func isTaken(err error) bool {
	return pg.Code(err) == "42P04" || pg.IsUnique(err, "pg_database_datname_index")
}

func migrate(ctx context.Context, address string) error {
	pool, err := pgxpool.New(ctx, address)
	if err != nil {
		return fmt.Errorf("open the template: %w", err)
	}
	defer pool.Close()
	return migrations.Up(ctx, pool, nil)
}

// readServer chooses how databases are copied. Copying through the log avoids
// the two checkpoints of a copy of files, which wait until the writes of all
// other tests have reached the disk. In memory there is no such wait, and a copy
// of files takes half of the processor's time. Before Postgres 15 there is no
// choice.
func (s *server) readServer(ctx context.Context) error {
	var version int
	var inMemory bool
	if err := s.admin.QueryRow(ctx, serverSQL).Scan(&version, &inMemory); err != nil {
		return fmt.Errorf("read the server's settings: %w", err)
	}
	switch {
	case version < 150000:
	case inMemory:
		s.clauses = " STRATEGY FILE_COPY"
	default:
		s.clauses = " STRATEGY WAL_LOG"
	}
	return nil
}
