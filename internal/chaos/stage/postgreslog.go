package stage

import (
	"fmt"
	"io"
	"regexp"
	"strings"
	"sync"
	"time"
)

// LogPrefix is the log_line_prefix that PostgresLog reads.
const LogPrefix = "%m [%p] %e [%a] "

// Entry is one message of the server.
type Entry struct {
	At       time.Time
	PID      string
	SQLState string
	Program  string // its application_name
	Severity string
	Text     string
	// More are the lines that follow it: DETAIL, HINT, CONTEXT, STATEMENT.
	More []string
}

// IsError reports whether the severity is ERROR or worse.
func (e *Entry) IsError() bool {
	return e.Severity == "ERROR" || e.Severity == "FATAL" || e.Severity == "PANIC"
}

// String is the entry with the beginning of what follows it.
func (e *Entry) String() string {
	var text strings.Builder
	fmt.Fprintf(&text, "%s [%s] %s [%s] %s: %s", e.At.Format("15:04:05.000"), e.PID, e.SQLState, e.Program, e.Severity, e.Text)
	for _, line := range e.More {
		text.WriteString(" | " + cut(strings.Join(strings.Fields(line), " "), 200))
	}
	return text.String()
}

func cut(s string, most int) string {
	if len(s) > most {
		return strings.ToValidUTF8(s[:most], "") + "…"
	}
	return s
}

// PostgresLog receives a server's log as it is written. It keeps the errors and counts
// the rest. It is safe for concurrent use.
type PostgresLog struct {
	// To, if not nil, receives the whole log too.
	To io.Writer

	mu     sync.Mutex
	split  splitter
	errors []*Entry
	last   map[string]*Entry // by process, the entry to which its next lines may belong
	lines  int
	// continued is the entry to which the next lines without a prefix belong;
	// nil if it is not kept.
	continued *Entry
}

// errorsMax bounds the number of errors that are kept.
const errorsMax = 200_000

var entryLine = regexp.MustCompile(`^(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+ \S+) \[(\d+)\] (\S{5}) \[(.*?)\] ([A-Z]+):  (.*)$`)

// Write receives a piece of the log. It never fails.
func (l *PostgresLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.split.write(l.To, p, l.add), nil
}

func (l *PostgresLog) add(text string) {
	l.lines++
	found := entryLine.FindStringSubmatch(text)
	if found == nil { // it continues the previous line, which was written in the same piece
		if e := l.continued; e != nil && len(e.More) > 0 {
			e.More[len(e.More)-1] += " " + strings.TrimSpace(text)
		}
		return
	}
	l.continued = l.last[found[2]]
	switch found[5] {
	case "DETAIL", "HINT", "CONTEXT", "QUERY", "STATEMENT", "LOCATION":
		if e := l.last[found[2]]; e != nil {
			e.More = append(e.More, found[5]+": "+found[6])
		}
		return
	}
	e := &Entry{PID: found[2], SQLState: found[3], Program: found[4], Severity: found[5], Text: found[6]}
	e.At, _ = time.Parse("2006-01-02 15:04:05.000 MST", found[1]) // no fault explains an error at the zero time
	if l.last == nil {
		l.last = make(map[string]*Entry)
	}
	delete(l.last, e.PID)
	l.continued = nil
	if e.IsError() && len(l.errors) < errorsMax {
		l.last[e.PID] = e
		l.errors = append(l.errors, e)
	}
}

// Forget drops the errors so far.
func (l *PostgresLog) Forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.errors, l.last, l.continued = nil, nil, nil
}

// Lines returns the number of lines so far.
func (l *PostgresLog) Lines() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lines
}

// Errors returns the errors so far.
func (l *PostgresLog) Errors() []*Entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]*Entry(nil), l.errors...)
}
