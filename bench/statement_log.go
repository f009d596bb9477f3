package main

import (
	"bytes"
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
