package stage

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"regexp"
)

const (
	// messageMax bounds a message; the largest that the programs send is a
	// group's batch.
	messageMax = 64 << 20
	// cancelCode is sent by a CancelRequest in place of a protocol version.
	cancelCode = 80877102
	// textMax bounds the part of a statement's text that is read.
	textMax = 4096
)

// message is one complete message of a client.
type message struct {
	raw []byte
	// commit means that this message commits a transaction with writes on which
	// an answer depends.
	commit bool
	// cancel means that the connection carries a CancelRequest.
	cancel bool
}

// frontend reads what a client sends on one connection.
type frontend struct {
	started    bool
	rest       []byte               // the beginning of a message whose end has not arrived
	statements map[string]statement // prepared statements, by name
	pipeline   bool                 // whether a pipeline is open, which ends with a Sync
	explicit   bool                 // whether the pipeline has a BEGIN
	wrote      bool                 // whether the transaction wrote
	matters    bool                 // whether an answer depends on what it wrote
}

// statement is what a statement does, by its text.
type statement struct{ begins, commits, writes, matters bool }

var (
	begins  = regexp.MustCompile(`(?i)^\s*(?:begin|start\s+transaction)\b`)
	commits = regexp.MustCompile(`(?i)^\s*commit\b`)
	writes  = regexp.MustCompile(`(?i)\b(?:insert\s+into|update|delete\s+from)\b`)
	matters = regexp.MustCompile(`(?i)\b(?:reservation_requests|reservations|inventory_stocks|idempotency_keys|audit_log)\b`)
)

func read(text []byte) statement {
	if end := bytes.IndexByte(text, 0); end >= 0 {
		text = text[:end]
	}
	text = text[:min(len(text), textMax)]
	w := writes.Match(text)
	return statement{begins: begins.Match(text), commits: commits.Match(text), writes: w, matters: w && matters.Match(text)}
}

// feed adds received bytes and returns the messages that are complete now. idle
// means that the server is not in a transaction.
func (f *frontend) feed(chunk []byte, idle func() bool) (messages []message, err error) {
	f.rest = append(f.rest, chunk...)
	for {
		n, err := f.next()
		if err != nil || n == 0 {
			return messages, err
		}
		m := message{raw: bytes.Clone(f.rest[:n])}
		f.rest = f.rest[n:]
		if f.started {
			m.commit = f.follow(m.raw, idle)
		} else {
			f.started = true
			m.cancel = len(m.raw) >= 8 && binary.BigEndian.Uint32(m.raw[4:]) == cancelCode
		}
		messages = append(messages, m)
	}
}

// next returns the length of the first message, or 0 if it is incomplete.
func (f *frontend) next() (int, error) {
	head := 5 // a type and a length
	if !f.started {
		head = 4 // the first message of a connection has no type
	}
	if len(f.rest) < head {
		return 0, nil
	}
	n := int64(binary.BigEndian.Uint32(f.rest[head-4:])) + int64(head-4)
	if n < int64(head) || n > messageMax {
		return 0, fmt.Errorf("a message of %d bytes", n)
	}
	if int64(len(f.rest)) < n {
		return 0, nil
	}
	return int(n), nil
}

// follow tracks the transaction and reports whether the message commits it.
func (f *frontend) follow(raw []byte, idle func() bool) bool {
	kind, body := raw[0], raw[5:]
	if !f.pipeline && idle() {
		f.wrote, f.matters, f.explicit = false, false, false
	}
	switch kind {
	case 'Q':
		s := read(body)
		f.note(s)
		return f.matters && (s.commits || s.writes && !s.begins && idle())
	case 'P':
		f.pipeline = true
		name, text, _ := bytes.Cut(body, []byte{0})
		if f.statements == nil {
			f.statements = make(map[string]statement)
		}
		f.statements[string(name)] = read(text)
	case 'B':
		f.pipeline = true
		_, after, _ := bytes.Cut(body, []byte{0}) // the portal
		name, _, _ := bytes.Cut(after, []byte{0})
		s := f.statements[string(name)]
		f.note(s)
		return s.commits && f.matters
	case 'S':
		implicit := f.pipeline && f.wrote && f.matters && !f.explicit && idle()
		f.pipeline = false
		return implicit
	default:
	}
	return false
}

func (f *frontend) note(s statement) {
	f.explicit = f.explicit || s.begins
	f.wrote = f.wrote || s.writes
	f.matters = f.matters || s.matters
}

// backend reads from the server's messages on one connection whether it is in a
// transaction.
type backend struct {
	head []byte // the first bytes of a message, at most six
	left int64  // bytes left of a message whose first bytes were read
}

// feed calls ready with the status of each ReadyForQuery in what arrived.
func (b *backend) feed(chunk []byte, ready func(status byte)) {
	for len(chunk) > 0 {
		if b.left > 0 {
			n := min(b.left, int64(len(chunk)))
			chunk = chunk[n:]
			b.left -= n
			continue
		}
		b.head = append(b.head, chunk[0])
		chunk = chunk[1:]
		if len(b.head) < 5 {
			continue
		}
		length := int64(binary.BigEndian.Uint32(b.head[1:5])) + 1
		if b.head[0] == 'Z' && length == 6 {
			if len(b.head) < 6 {
				continue
			}
			ready(b.head[5])
		}
		b.left = max(length-int64(len(b.head)), 0)
		b.head = b.head[:0]
	}
}
