package ready

import (
	"github.com/holdfast/holdfast/projections"
)

// Availability is the counters of a variant, and the settings that decide whether
// they limit it.
type Availability struct {
	VariantID string `json:"variant_id"`
	Stock     int64  `json:"stock"`
	Reserved  int64  `json:"reserved"`
	// Available is Stock + PreorderMax − Reserved. The units of due holds become available
	// when their expiry is recorded.
	Available int64 `json:"available"`
	Tracked   bool  `json:"tracked"`
	Backorder bool  `json:"backorder"`
	// PreorderMax is how far Reserved may exceed Stock if Backorder is set, 0 for
	// no limit; it is part of Available.
	PreorderMax int64 `json:"preorder_max,omitempty"`
}

// availability is stocks.availability, with a key per variant.
func availability() projections.Projection[*Event, Availability, Availability] {
	return projections.Projection[*Event, Availability, Availability]{
		Name:             "stocks.availability",
		Source:           source,
		SnapshotInterval: snapshotInterval,
		Key: func(e *Event) projections.Key {
			switch {
			case e.Kind == StockChanged:
				return projections.Key{TenantID: e.TenantID, Key: e.Stock.VariantID}
			case e.ofVariant():
				return projections.Key{TenantID: e.TenantID, Key: e.ResourceKey}
			}
			return projections.Key{}
		},
		Apply:    applyAvailability,
		Coalesce: later[Availability],
	}
}

func applyAvailability(a *Availability, e *Event) Availability {
	switch e.Kind {
	case StockChanged: // written under the stock's lock, so reserved is exact too
		*a = *e.Stock
	case Held:
		a.Reserved += e.Quantity
	case Committed:
		a.Reserved -= e.Quantity
		a.Stock -= e.Quantity
	case Released, Expired, Resized:
		a.Reserved -= e.Quantity
	case RequestFailed:
	}
	if e.Kind != StockChanged {
		a.VariantID = e.ResourceKey
	}
	a.Available = a.Stock + a.PreorderMax - a.Reserved
	return *a
}
