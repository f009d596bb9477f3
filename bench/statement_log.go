package main

import (
	"bytes"
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// statementPrefix is the log_line_prefix that a statementLog reads: time,
// process, database, application_name.
const statementPrefix = "%m [%p] [%d] [%a] "

var (
	logLine         = regexp.MustCompile(`^\S+ \S+ \S+ \[\d+\] \[(.*?)\] \[(.*?)\] ([A-Z]+): {2}(.*)$`)
	loggedStatement = regexp.MustCompile(`^(?:statement|execute [^:]*): (.*)$`)
)

// statementLog receives the log of a server that logs its statements, and keeps
// the statements while it records. It is safe for concurrent use.
type statementLog struct {
	mu        sync.Mutex
	recording bool
	partial   []byte
	open      bool // the next lines without a prefix belong to the last statement
	found     []logged
}

// logged is one statement.
type logged struct{ database, program, text string }

// statementsMax bounds how many statements are kept.
const statementsMax = 1_000_000

// Write takes a piece of the log. It never fails.
func (l *statementLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.recording {
		return len(p), nil
	}
	rest := slices.Concat(l.partial, p)
	for {
		line, after, whole := bytes.Cut(rest, []byte("\n"))
		if !whole {
			break
		}
		l.add(string(line))
		rest = after
	}
	l.partial = bytes.Clone(rest)
	return len(p), nil
}

// add takes a line.
func (l *statementLog) add(line string) {
	entry := logLine.FindStringSubmatch(line)
	if entry == nil {
		if l.open {
			l.found[len(l.found)-1].text += " " + strings.TrimSpace(line)
		}
		return
	}
	l.open = false
	text := loggedStatement.FindStringSubmatch(entry[4])
	if entry[3] == "LOG" && text != nil && len(l.found) < statementsMax {
		l.found, l.open = append(l.found, logged{entry[1], entry[2], text[1]}), true
	}
}

// record begins to keep statements.
func (l *statementLog) record() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.recording, l.partial, l.open, l.found = true, nil, false, nil
}

// stop ends it and returns the statements of a database.
func (l *statementLog) stop(database string) (found []logged) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.found {
		if s.database == database {
			found = append(found, s)
		}
	}
	l.recording, l.partial, l.open, l.found = false, nil, false, nil
	return found
}

// logStatements switches the statement log of every session on or off.
func (b *bench) logStatements(ctx context.Context, on bool) error {
	change := `ALTER SYSTEM RESET log_statement`
	if on {
		change = `ALTER SYSTEM SET log_statement = 'all'`
	}
	if _, err := b.admin.Exec(ctx, change); err != nil {
		return fmt.Errorf("log statements: %w", err)
	}
	_, err := b.admin.Exec(ctx, `SELECT pg_reload_conf()`)
	return err
}

// tallied counts statements.
func tallied(found []logged, of func(logged) string) map[string]int64 {
	n := make(map[string]int64)
	for _, s := range found {
		n[of(s)]++
	}
	return n
}

// written is what the server has written: syncs of the log, transactions that
// drew an id.
type written struct{ syncs, transactions int64 }

func (w written) since(before written) written {
	return written{w.syncs - before.syncs, w.transactions - before.transactions}
}

const (
	// writtenSQL has no syncs where pg_stat_wal does not count them.
	writtenSQL = `
SELECT (SELECT (to_jsonb(w) ->> 'wal_sync')::bigint FROM pg_stat_wal AS w),
       pg_snapshot_xmax(pg_current_snapshot())::text::bigint`
	// syncedByIO is for Postgres 18 and later.
	syncedByIO = `SELECT coalesce(sum(fsyncs), 0)::bigint FROM pg_stat_io WHERE object = 'wal'`
)

func (b *bench) written(ctx context.Context) (w written, err error) {
	var syncs *int64
	if err := b.admin.QueryRow(ctx, writtenSQL).Scan(&syncs, &w.transactions); err != nil {
		return w, fmt.Errorf("read the log's statistics: %w", err)
	}
	if syncs != nil {
		w.syncs = *syncs
		return w, nil
	}
	err = b.admin.QueryRow(ctx, syncedByIO).Scan(&w.syncs)
	return w, err
}
