package ready

import (
	"github.com/holdfast/holdfast/projections"
)

// Counters are how many reservations of a resource kind were held, committed
// and released since the record began. Released includes the expired ones.
type Counters struct {
	Held      int64 `json:"held"`
	Committed int64 `json:"committed"`
	Released  int64 `json:"released"`
}

// counters is reservations.counters, with a key per resource kind.
func counters() projections.Projection[*Event, Counters, Counters] {
	return projections.Projection[*Event, Counters, Counters]{
		Name:             "reservations.counters",
		Source:           source,
		SnapshotInterval: snapshotInterval,
		Key: func(e *Event) projections.Key {
			if e.Kind > Expired {
				return projections.Key{}
			}
			return projections.Key{TenantID: e.TenantID, Key: e.ResourceKind}
		},
		Apply:    applyCounters,
		Coalesce: later[Counters],
	}
}

func applyCounters(c *Counters, e *Event) Counters {
	switch e.Kind {
	case Held:
		c.Held++
	case Committed:
		c.Committed++
	case Released, Expired:
		c.Released++
	case Resized, RequestFailed, StockChanged: // not of a reservation
	}
	return *c
}

// later combines deltas that are whole states.
func later[D any](_, b D) D { return b }
