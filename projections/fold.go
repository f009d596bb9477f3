package projections

import (
	"encoding/json"
	"errors"
	"fmt"
)

// StateMax is the largest size of a state, in bytes of JSON.
const StateMax = 1 << 20

// numbered is an event with the id of its audit record, 0 if it does not come
// from the record.
type numbered[E any] struct {
	id    int64
	event E
}

// folded is the result of folding a run of events into a row.
type folded struct {
	row
	applied  int
	messages []message
	// skipped counts the events that cannot be folded. failure is the error of
	// the first of them, and failedAt its audit id.
	skipped  int
	failure  error
	failedAt int64
}

// fold folds the events of one key into its row. It leaves out those that the
// row contains already. An event whose Apply panics, or after which the state
// cannot be stored, is skipped: it changes neither state nor version.
func (r *Runtime[E, S, D]) fold(key Key, from row, events []numbered[E]) folded {
	for len(events) > 0 && events[0].id != 0 && events[0].id <= from.position {
		events = events[1:]
	}
	f, err := r.foldRun(key, from, events)
	if err == nil {
		return f
	}
	f = folded{row: from}
	for i := range events {
		one, err := r.foldRun(key, f.row, events[i:i+1])
		if err == nil {
			f.row, f.applied, f.messages = one.row, f.applied+1, append(f.messages, one.messages...)
			continue
		}
		if f.skipped++; f.failure == nil {
			f.failure, f.failedAt = err, events[i].id
		}
	}
	return f
}

// foldRun folds all of the events, or none if one of them fails.
func (r *Runtime[E, S, D]) foldRun(key Key, from row, events []numbered[E]) (f folded, err error) {
	f = folded{row: from, applied: len(events)}
	if len(events) == 0 {
		return f, nil
	}
	defer func() {
		if p := recover(); p != nil {
			err = &ApplyError{Name: r.p.Name, Panic: p}
		}
	}()
	var state S
	if from.version > 0 {
		if err := r.decode(key, from, &state); err != nil {
			return f, err
		}
	}
	frame := Frame{TenantID: key.TenantID, Channel: Channel(r.p.Name, key.Key), Event: r.p.EventName}
	var sum D
	for i := range events {
		delta := r.p.Apply(&state, events[i].event)
		f.version++
		switch {
		case r.p.Coalesce == nil:
			frame.First, frame.Version, frame.Payload = f.version, f.version, encoded(delta)
			f.messages = append(f.messages, message{Frame: frame})
		case i == 0:
			sum = delta
		default:
			sum = r.p.Coalesce(sum, delta)
		}
	}
	if r.p.Coalesce != nil {
		frame.First, frame.Version = from.version+1, f.version
		f.messages = []message{{Frame: frame, delta: sum, merge: r.merge}}
	}
	f.position = max(from.position, events[len(events)-1].id)
	f.state, err = r.encode(key, &state)
	return f, err
}

// merge combines two deltas.
func (r *Runtime[E, S, D]) merge(a, b any) any { return r.p.Coalesce(a.(D), b.(D)) }

// encode returns the form in which the state is stored.
func (r *Runtime[E, S, D]) encode(key Key, state *S) (json.RawMessage, error) {
	text, err := json.Marshal(state)
	if err == nil && len(text) > StateMax {
		err = fmt.Errorf("a state of %d bytes is above the limit of %d", len(text), StateMax)
	}
	if err != nil {
		return nil, &JSONError{r.p.Name, key, err}
	}
	return text, nil
}

// encoded returns the form in which a delta is sent, or nil if it has none: the
// clients then read the state.
func encoded(delta any) json.RawMessage {
	text, err := json.Marshal(delta)
	if err != nil {
		return nil
	}
	return text
}

// keyOf returns the key of the event, if it can be stored, and the zero Key for
// an event of no key.
func (r *Runtime[E, S, D]) keyOf(event E) (key Key, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &ApplyError{Name: r.p.Name, Panic: p}
		}
	}()
	key = r.p.Key(event)
	if key == (Key{}) {
		return key, nil
	}
	if err := checkKey(key.Key); err != nil {
		return key, &JSONError{r.p.Name, key, errors.Join(errors.New("the key cannot be stored"), err)}
	}
	return key, nil
}
