package projections

import (
	"errors"
	"fmt"

	"github.com/google/uuid"

	"github.com/holdfast/holdfast/audit"
)

// recorded is the event of a record. failure is why it could not be decoded.
type recorded[E any] struct {
	numbered[E]
	tenantID uuid.UUID
	failure  error
}

// grouped is the events of one projection in a delivery, by key.
type grouped[E, S, D any] struct {
	r       *Runtime[E, S, D]
	index   map[Key]int
	key     []Key
	events  [][]numbered[E]
	invalid int
	failure error
}

var errOtherTenant = errors.New("projection: the key belongs to another tenant than the record")

func (r *Runtime[E, S, D]) collect(records []audit.Record, decoded map[any]any) batch {
	events, ok := decoded[r.p.Source].([]recorded[E])
	if !ok {
		events = r.p.Source.decode(records)
		decoded[r.p.Source] = events
	}
	g := &grouped[E, S, D]{r: r, index: make(map[Key]int)}
	for i := range events {
		g.add(&events[i])
	}
	return g
}

// decode returns the events of the records.
func (s *Source[E]) decode(records []audit.Record) []recorded[E] {
	events := make([]recorded[E], 0, len(records))
	for i := range records {
		if e, ok := s.decodeOne(&records[i]); ok {
			events = append(events, e)
		}
	}
	return events
}

func (s *Source[E]) decodeOne(record *audit.Record) (e recorded[E], ok bool) {
	e.id, e.tenantID = record.AuditID, record.TenantID
	defer func() {
		if p := recover(); p != nil {
			e.failure, ok = fmt.Errorf("projection: audit row %d cannot be decoded: panic: %v", record.AuditID, p), true
		}
	}()
	e.event, ok = s.Decode(record)
	return e, ok
}

// add adds the event to those of its key.
func (g *grouped[E, S, D]) add(e *recorded[E]) {
	key, err := g.keyOf(e)
	if err != nil {
		if g.invalid++; g.failure == nil {
			g.failure = err
		}
		return
	}
	if key == (Key{}) {
		return
	}
	at, known := g.index[key]
	if !known {
		at = len(g.key)
		g.index[key] = at
		g.key, g.events = append(g.key, key), append(g.events, nil)
	}
	g.events[at] = append(g.events[at], e.numbered)
}

func (g *grouped[E, S, D]) keyOf(e *recorded[E]) (Key, error) {
	if e.failure != nil {
		return Key{}, e.failure
	}
	key, err := g.r.keyOf(e.event)
	if err == nil && key != (Key{}) && key.TenantID != e.tenantID {
		err = errOtherTenant
	}
	return key, err
}

func (g *grouped[E, S, D]) keys() []Key { return g.key }

func (g *grouped[E, S, D]) refused() (int, error) { return g.invalid, g.failure }

func (g *grouped[E, S, D]) fold(i, from int, at row) (f folded, next int) {
	events := g.events[i][from:]
	if most := g.r.p.SnapshotInterval; len(events) > most {
		events, next = events[:most], from+most
	}
	return g.r.fold(g.key[i], at, events), next
}
