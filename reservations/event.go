package reservations

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/reservationrows"
)

// The names of the events: the Action of a reservation's audit records.
const (
	EventHeld      = reservationrows.EventHeld
	EventExtended  = reservationrows.EventExtended
	EventCommitted = reservationrows.EventCommitted
	EventReleased  = reservationrows.EventReleased
	EventExpired   = reservationrows.EventExpired
)

// ErrNotEvent reports an audit record of something other than a reservation.
var ErrNotEvent = errors.New("reservation: not an event of a reservation")

// Event is one transition of a reservation of any kind, a variant's too, as the audit log recorded it in the transaction
// of the transition.
type Event struct {
	// Name is EventHeld, EventExtended, EventCommitted, EventReleased or EventExpired.
	Name string
	// AuditID is the record's. Those of one reservation are in the order of what happened.
	AuditID int64
	// CreatedAt is when it was recorded, on the database's clock.
	CreatedAt time.Time
	// Origin is who asked for it, why, and under which correlation id.
	audit.Origin
	TenantID      uuid.UUID
	ReservationID uuid.UUID
	// The rest is the reservation after the transition. ResourceWindow is JSON, empty for a resource without windows.
	Status         Status
	ResourceKind   string
	ResourceKey    string
	ResourceWindow string
	HolderID       string
	Quantity       int64
	ExpiresAt      time.Time
	// ReleaseReason is that of EventReleased; TTL for EventExpired.
	ReleaseReason ReleaseReason
}

// ParseEvent reads the event of an audit record. It is for the handler of an audit.Subscription, which is given the
// records of all kinds.
//
// Errors: ErrNotEvent for a record of something else, which a subscriber passes over.
func ParseEvent(r audit.Record) (Event, error) {
	switch r.Action {
	case EventHeld, EventExtended, EventCommitted, EventReleased, EventExpired:
	default:
		return Event{}, fmt.Errorf("%w: %s", ErrNotEvent, r.Action)
	}
	var after struct {
		Status         Status          `json:"status"`
		ResourceKind   string          `json:"resource_kind"`
		ResourceKey    string          `json:"resource_key"`
		ResourceWindow json.RawMessage `json:"resource_window"`
		HolderID       string          `json:"holder_id"`
		Quantity       int64           `json:"quantity"`
		ExpiresAt      time.Time       `json:"expires_at"`
		ReleaseReason  ReleaseReason   `json:"release_reason"`
	}
	if err := json.Unmarshal(r.After, &after); err != nil {
		return Event{}, fmt.Errorf("reservation: parse audit record %d: %w", r.AuditID, err)
	}
	return Event{
		Name: r.Action, AuditID: r.AuditID, CreatedAt: r.CreatedAt, Origin: r.Origin,
		TenantID: r.TenantID, ReservationID: r.TargetID,
		Status: after.Status, ResourceKind: after.ResourceKind, ResourceKey: after.ResourceKey,
		ResourceWindow: string(after.ResourceWindow), HolderID: after.HolderID, Quantity: after.Quantity,
		ExpiresAt: after.ExpiresAt, ReleaseReason: after.ReleaseReason,
	}, nil
}
