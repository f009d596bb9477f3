package ready

import (
	"encoding/json"
	"time"

	"github.com/google/uuid"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/projections"
)

// Kind is what an Event is about.
type Kind int

// The kinds of events.
const (
	Held Kind = iota
	Committed
	Released
	Expired
	Resized
	RequestFailed
	StockChanged
)

var kinds = map[string]Kind{
	"reservation.held":      Held,
	"reservation.committed": Committed,
	"reservation.released":  Released,
	"reservation.expired":   Expired,
	"reservation.resized":   Resized,
	"request.failed":        RequestFailed,
	"stock.set":             StockChanged,
	"stock.adjusted":        StockChanged,
	"stock.deleted":         StockChanged,
}

// Event is an audit record of a reservation's transition, of a failed request or
// of a changed stock.
type Event struct {
	TenantID, TargetID uuid.UUID
	At                 time.Time
	Kind               Kind
	// ResourceKind and ResourceKey name what a reservation is of.
	ResourceKind, ResourceKey string
	// Quantity is the units of the reservation, or those that were taken from it.
	Quantity int64
	// Reason is why a request failed.
	Reason string
	// Stock is the stock after its change.
	Stock *Availability
}

// source decodes each record once for all ready projections.
var source = &projections.Source[*Event]{Decode: decode}

func decode(r *audit.Record) (*Event, bool) {
	kind, ok := kinds[r.Action]
	if !ok {
		return nil, false
	}
	e := &Event{TenantID: r.TenantID, TargetID: r.TargetID, At: r.CreatedAt, Kind: kind}
	if kind == StockChanged {
		e.Stock = &Availability{}
		if err := json.Unmarshal(r.After, e.Stock); err != nil {
			panic(err) // the feed reports the record and leaves it out
		}
		e.Stock.Tracked = e.Stock.Tracked || r.Action == "stock.deleted" // it has no units, and is not digital
		return e, true
	}
	members(r.After, func(name, value []byte) {
		switch string(name) {
		case "resource_kind":
			e.ResourceKind = textOf(value, inventory.Kind)
		case "resource_key":
			e.ResourceKey = textOf(value, "")
		case "quantity":
			e.Quantity = integer(value)
		case "reason":
			e.Reason = textOf(value, "out_of_stock")
		}
	})
	if kind == Resized {
		left := e.Quantity
		members(r.Before, func(name, value []byte) {
			if string(name) == "quantity" {
				e.Quantity = integer(value) - left
			}
		})
	}
	return e, true
}

// ofVariant reports whether the event is a transition of a variant's
// reservation.
func (e *Event) ofVariant() bool { return e.Kind <= Resized && e.ResourceKind == inventory.Kind }
