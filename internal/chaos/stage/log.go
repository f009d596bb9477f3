package stage

import (
	"encoding/json"
	"io"
	"maps"
	"strings"
	"sync"
	"time"
)

// Log receives the output of a program: JSON lines, and the text of Go's
// runtime when a process crashes. It is safe for concurrent use.
type Log struct {
	// To, if not nil, receives the whole log too.
	To io.Writer

	mu      sync.Mutex
	split   splitter
	last    []string
	lines   int
	bytes   int
	counts  map[string]int
	seconds map[int64]int // number of lines by second
	alarms  []string
}

const (
	lastMax   = 30
	alarmsMax = 20
	countsMax = 2000
	lineMax   = 600
)

// Write receives a piece of the log. It never fails.
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.split.write(l.To, p, l.add), nil
}

func (l *Log) add(text string) {
	l.lines++
	l.bytes += len(text) + 1
	if l.counts == nil {
		l.counts, l.seconds = make(map[string]int), make(map[int64]int)
	}
	l.seconds[time.Now().Unix()]++
	if key := sort(text); l.counts[key] > 0 || len(l.counts) < countsMax {
		l.counts[key]++
	}
	if isAlarm(text) && len(l.alarms) < alarmsMax {
		l.alarms = append(l.alarms, text[:min(len(text), lineMax)])
	}
	if len(text) > lineMax {
		text = strings.ToValidUTF8(text[:lineMax], "") + "…"
	}
	l.last = append(l.last, text)
	if len(l.last) > lastMax {
		l.last = l.last[1:]
	}
}

// sort is a line without the parts that differ between lines of one sort.
func sort(text string) string {
	var record struct{ Level, Msg, Component string }
	if json.Unmarshal([]byte(text), &record) != nil || record.Msg == "" {
		return "not JSON"
	}
	return strings.TrimSpace(record.Level + " " + record.Component + " " + record.Msg)
}

// isAlarm reports whether a line is about a crash or a data race.
func isAlarm(text string) bool {
	for _, begin := range []string{"panic:", "fatal error:", "WARNING: DATA RACE", "goroutine 1 ["} {
		if strings.HasPrefix(text, begin) {
			return true
		}
	}
	return strings.Contains(text, `"msg":"panic`) || strings.Contains(text, "panicked")
}

// Last returns the last lines.
func (l *Log) Last() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]string(nil), l.last...)
}

// Volume is the amount that a program wrote.
type Volume struct {
	Lines int `json:"lines"`
	Bytes int `json:"bytes"`
	// Worst is the largest number of lines in one second.
	Worst int `json:"worst_second"`
	// Counts are the numbers of lines by sort: the level and the message.
	Counts map[string]int `json:"-"`
	// Alarms are lines about a crash or a data race.
	Alarms []string `json:"-"`
}

// Volume returns the amount so far.
func (l *Log) Volume() Volume {
	l.mu.Lock()
	defer l.mu.Unlock()
	v := Volume{Lines: l.lines, Bytes: l.bytes, Counts: maps.Clone(l.counts), Alarms: append([]string(nil), l.alarms...)}
	for _, n := range l.seconds {
		v.Worst = max(v.Worst, n)
	}
	return v
}
