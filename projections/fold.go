package projections

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
)

// stateMax is the largest size of a state, in bytes of JSON.
const stateMax = 1 << 20

// refusedMax is what events that cannot be folded may cost in successive runs, in
// bytes of JSON, before their key is parked. Each failure decodes the state again,
// and one that is too large was encoded first. For a state of stateMax it is a
// fraction of a second of one process.
const refusedMax = 8 * stateMax

// sizeError is the size of a state that is too large to be stored.
type sizeError int

func (e sizeError) Error() string {
	return fmt.Sprintf("a state of %d bytes is above the limit of %d", int(e), stateMax)
}

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
//
// The events are applied to one decoded state, which is encoded once at the end.
// Only an event that fails costs more: the state is decoded again from its last
// stored form, and if no event of a run panicked, the run is bisected. Once that
// has cost refusedMax in successive runs, the key is parked: all later events
// are skipped, until a rebuild.
func (r *Runtime[E, S, D]) fold(key Key, from row, events []numbered[E]) folded {
	for len(events) > 0 && events[0].id != 0 && events[0].id <= from.position {
		events = events[1:]
	}
	f := folding[E, S, D]{r: r, key: key, result: folded{row: from}}
	switch {
	case len(events) == 0:
	case from.parked != nil:
		f.result.skipped, f.result.failure, f.result.failedAt = len(events), &Error{ErrParked, r.p.Name, key, from.parked.cause}, events[0].id
	default:
		f.restore()
		f.fold(events)
		if f.result.skipped == 0 {
			f.result.refused = 0
		}
	}
	return f.result
}

// folding is a fold of one key.
type folding[E, S, D any] struct {
	r   *Runtime[E, S, D]
	key Key
	// result has the last state that could be encoded. broken is why that state
	// cannot be decoded: then no event can be folded.
	result folded
	broken error
	// state has the events that were applied since, pending their number. delta
	// is their combined delta, messages are their frames.
	state    S
	pending  int64
	delta    any
	messages []message
}

// run is a run of events. failure is not nil if they are known to fail: not one
// by one, but the state cannot be encoded after the last of them. That is known
// while no more events are skipped than skipped.
type run[E any] struct {
	events  []numbered[E]
	failure error
	skipped int
}

// fold folds the events. A run after which the state cannot be encoded is
// bisected: if all of the first half can be folded, the second half is known to
// fail.
func (f *folding[E, S, D]) fold(events []numbered[E]) {
	left := []run[E]{{events: events}} // the last is the next
	for len(left) > 0 {
		next := left[len(left)-1]
		left = left[:len(left)-1]
		failure := f.stopped()
		if failure != nil {
			for _, event := range next.events {
				f.skip(event, failure)
			}
			continue
		}
		if f.result.skipped <= next.skipped {
			failure = next.failure
		}
		if failure == nil {
			var applied int
			applied, failure = f.try(next.events)
			if failure != nil && applied < len(next.events) {
				left = append(left, run[E]{events: next.events[applied+1:]}, run[E]{next.events[applied : applied+1], failure, math.MaxInt}, run[E]{events: next.events[:applied]})
				continue
			}
		}
		switch half := len(next.events) / 2; {
		case failure == nil:
		case half == 0:
			f.skip(next.events[0], failure)
		default:
			left = append(left, run[E]{next.events[half:], failure, f.result.skipped}, run[E]{events: next.events[:half]})
		}
	}
}

// try applies the events and saves the state. After a failure it restores the
// last saved one, and returns how many events were applied before it.
func (f *folding[E, S, D]) try(events []numbered[E]) (applied int, err error) {
	if len(events) == 0 {
		return 0, nil
	}
	applied, err = f.applyAll(events)
	if err == nil {
		err = f.save(events[len(events)-1].id)
	}
	if err != nil {
		f.refuse(err)
	}
	return applied, err
}

// applyAll applies the events to the state, up to the first that fails. It
// returns how many it applied.
func (f *folding[E, S, D]) applyAll(events []numbered[E]) (applied int, err error) {
	for i := range events {
		delta, err := f.apply(events[i].event)
		if err != nil {
			return i, err
		}
		f.pending++
		f.note(delta)
	}
	return len(events), nil
}

func (f *folding[E, S, D]) apply(event E) (delta D, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = f.r.panicked(p)
		}
	}()
	return f.r.p.Apply(&f.state, event), nil
}

// note adds the delta of the last event to what is to be sent.
func (f *folding[E, S, D]) note(delta D) {
	switch {
	case f.r.p.Coalesce == nil:
		version := f.result.version + f.pending
		f.messages = append(f.messages, message{Frame: f.frame(version, version, encoded(delta))})
	case f.pending == 1:
		f.delta = delta
	default:
		f.delta = f.r.merge(f.delta, delta)
	}
}

func (f *folding[E, S, D]) frame(first, version int64, payload json.RawMessage) Frame {
	return Frame{
		TenantID: f.key.TenantID, Channel: Channel(f.r.p.Name, f.key.Key), Event: f.r.p.EventName,
		First: first, Version: version, Payload: payload,
	}
}

// save encodes the state. position is the audit id of the last event in it.
func (f *folding[E, S, D]) save(position int64) error {
	state, err := f.r.encode(f.key, &f.state)
	if err != nil {
		return err
	}
	before := f.result.version
	f.result.state, f.result.version, f.result.position = state, before+f.pending, max(f.result.position, position)
	if f.r.p.Coalesce != nil {
		f.messages = append(f.messages, message{Frame: f.frame(before+1, f.result.version, nil), delta: f.delta, merge: f.r.merge})
	}
	f.result.applied += int(f.pending)
	f.result.messages = append(f.result.messages, f.messages...)
	f.pending, f.delta, f.messages = 0, nil, nil
	return nil
}

// restore discards what was applied since the last save.
func (f *folding[E, S, D]) restore() {
	f.pending, f.delta, f.messages = 0, nil, nil
	var state S
	f.state = state
	if f.result.version > 0 {
		f.broken = f.r.decode(f.key, f.result.row, &f.state)
	}
}

// stopped returns why no event can be folded any more, nil if one can.
func (f *folding[E, S, D]) stopped() error {
	if f.result.parked != nil {
		return f.result.parked.cause
	}
	return f.broken
}

// refuse is restore after a failure. It counts what that costs, and parks the
// key once it is too much.
func (f *folding[E, S, D]) refuse(failure error) {
	f.restore()
	var made sizeError
	_ = errors.As(failure, &made)
	if f.result.refused += int64(len(f.result.state)) + int64(made); f.result.refused >= refusedMax {
		f.result.parked = &parking{cause: failure}
	}
}

// skip leaves the event out.
func (f *folding[E, S, D]) skip(event numbered[E], failure error) {
	if parked := f.result.parked; parked != nil && parked.from == 0 {
		parked.from = event.id
	}
	if f.result.skipped++; f.result.failure == nil {
		f.result.failure, f.result.failedAt = failure, event.id
	}
}

// merge combines two successive deltas. It returns nil, which is a frame without
// a payload, if one of them is nil or Coalesce panics.
func (r *Runtime[E, S, D]) merge(a, b any) (sum any) {
	if a == nil || b == nil {
		return nil
	}
	defer func() {
		if p := recover(); p != nil {
			r.log.Error("deltas were not combined: the frame has no payload", "projection", r.p.Name, "error", r.panicked(p))
			sum = nil
		}
	}()
	return r.p.Coalesce(a.(D), b.(D))
}

// encode returns the form in which the state is stored.
func (r *Runtime[E, S, D]) encode(key Key, state *S) (json.RawMessage, error) {
	text, err := marshal(state)
	if err == nil && len(text) > stateMax {
		err = sizeError(len(text))
	}
	if err != nil {
		return nil, r.unfit(key, err)
	}
	return text, nil
}

// encoded returns the form in which a delta is sent, or nil if it has none: the
// clients then read the state.
func encoded(delta any) json.RawMessage {
	text, err := marshal(delta)
	if err != nil {
		return nil
	}
	return text
}

// marshal is json.Marshal for a type whose own methods may panic.
func marshal(v any) (text []byte, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("make the JSON form: panic: %v", p)
		}
	}()
	return json.Marshal(v)
}

// keyOf returns the key of the event, if it can be stored, and the zero Key for
// an event of no key.
func (r *Runtime[E, S, D]) keyOf(event E) (key Key, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = r.panicked(p)
		}
	}()
	key = r.p.Key(event)
	if key == (Key{}) {
		return key, nil
	}
	if err := checkKey(key.Key); err != nil {
		return key, r.unfit(key, errors.Join(errors.New("the key cannot be stored"), err))
	}
	return key, nil
}
