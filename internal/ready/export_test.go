package ready

import (
	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/projections"
)

// FoldAvailability folds a record into the states, and returns the key and the
// state that it changed.
func FoldAvailability(states map[projections.Key]*Availability, r *audit.Record) (key projections.Key, now Availability, ok bool) {
	e, ok := decode(r)
	if !ok {
		return key, now, false
	}
	key = availability().Key(e)
	if key == (projections.Key{}) {
		return key, now, false
	}
	if states[key] == nil {
		states[key] = &Availability{}
	}
	return key, applyAvailability(states[key], e), true
}
