package reservations

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/reservationrows"
)

// Reservation is a row of the reservations table. Its fields:
//
//	TenantID, ReservationID   uuid.UUID
//	ResourceKind, ResourceKey string // what is reserved; the key as canonical JSON
//	ResourceWindow            string // as canonical JSON; empty without windows
//	HolderID                  string // for whom: a cart, a booking
//	CustomerID                string // whose limits count a variant's hold; empty: the cart's
//	Quantity                  int64  // units, at least 1
//	Status                    reservations.Status
//	ReleaseReason             reservations.ReleaseReason
//	FirstHeldAt, HeldAt       time.Time  // the lifetime cap counts from the first
//	ExpiresAt                 time.Time  // the deadline
//	EndedAt                   *time.Time // nil while held
//	UnitIDs                   []string   // units with their own identity
//	CheckoutID                uuid.UUID  // the checkout of a variant's hold
//	KitID                     string     // the kit that a variant's hold is a part of
//	AllotmentID               string     // the allotment from which a variant's hold was taken
//	ReturnedQuantity          int64      // of Quantity, back after the commit
//	PartOf                    uuid.UUID  // the reservation of which it was committed as a part
//
// Times are the database's. Due(now) reports whether the reservation is held
// past its deadline at now, a reading of the database's clock.
type Reservation = reservationrows.Reservation

// Status is the status of a reservation: Held, Committed, Released or Expired.
type Status = reservationrows.Status

// The four statuses. All but Held are final.
const (
	Held      = reservationrows.Held
	Committed = reservationrows.Committed
	Released  = reservationrows.Released
	Expired   = reservationrows.Expired
)

// ReleaseReason is why units were given back: one of the constants, or the
// caller's own reason in their form; see Kernel.Release.
type ReleaseReason = reservationrows.ReleaseReason

// The release reasons of a shop. A row can also have the reason "ttl", of an
// expiry, and a variant's row "replaced", of a change of its quantity.
const (
	CartRemoved   = reservationrows.CartRemoved
	PaymentFailed = reservationrows.PaymentFailed
	Abandoned     = reservationrows.Abandoned
	Operator      = reservationrows.Operator
)

var (
	// ErrNotFound means that the tenant has no such reservation.
	ErrNotFound = reservationrows.ErrNotFound
	// ErrLifetimeExceeded means that an extension would pass the lifetime cap.
	ErrLifetimeExceeded = reservationrows.ErrLifetimeExceeded
)

// ConflictError means that a reservation is not in the status that a verb
// expects: it has ended, or it is past its deadline. Its fields:
//
//	ID       uuid.UUID // of the reservation
//	Expected Status
//	Actual   Status    // also Expired for a hold that is due and not swept yet
type ConflictError = reservationrows.ConflictError

// Get returns one reservation of the tenant, of any kind, or ErrNotFound. It
// reads through db, a pool or a transaction, and locks nothing. A hold that is
// past its deadline by the database's clock is returned as Expired, with reason
// "ttl", even before its expiry is recorded; until then EndedAt is nil.
func Get(ctx context.Context, db audit.Querier, tenantID, reservationID uuid.UUID) (Reservation, error) {
	r, err := reservationrows.Get(ctx, db, tenantID, reservationID)
	return r, prefixed(err)
}

// Event is one transition of a reservation of any kind, a variant's too, as the
// audit log recorded it in the transaction of the transition.
type Event struct {
	// Name is the Action of the record: "reservation.held", "….extended",
	// "….committed", "….released" or "….expired".
	Name string `json:"name"`
	// AuditID is the id of the record. The ids of one reservation are in the
	// order of what happened.
	AuditID int64 `json:"audit_id"`
	// CreatedAt is when it was recorded, on the database's clock.
	CreatedAt time.Time `json:"created_at"`
	// Origin is who asked for the transition, why, and under which correlation
	// id.
	audit.Origin  `json:"origin"`
	TenantID      uuid.UUID `json:"tenant_id"`
	ReservationID uuid.UUID `json:"reservation_id"`
	// The rest is the reservation after the transition. ResourceWindow is JSON,
	// empty for a resource without windows.
	Status         Status    `json:"status"`
	ResourceKind   string    `json:"resource_kind"`
	ResourceKey    string    `json:"resource_key"`
	ResourceWindow string    `json:"resource_window"`
	HolderID       string    `json:"holder_id"`
	Quantity       int64     `json:"quantity"`
	ExpiresAt      time.Time `json:"expires_at"`
	// ReleaseReason is the reason of a release; "ttl" for an expiry.
	ReleaseReason ReleaseReason `json:"release_reason"`
}

// ParseEvent reads the event of an audit record. It is for the handler of an
// audit.Subscription, which receives records of all kinds: ok is false for a
// record of something else.
func ParseEvent(r audit.Record) (event Event, ok bool, err error) {
	switch r.Action {
	case reservationrows.EventHeld, reservationrows.EventExtended, reservationrows.EventCommitted,
		reservationrows.EventReleased, reservationrows.EventExpired,
		reservationrows.EventResized, reservationrows.EventMoved, reservationrows.EventReturned:
	default:
		return Event{}, false, nil
	}
	event = Event{
		Name: r.Action, AuditID: r.AuditID, CreatedAt: r.CreatedAt, Origin: r.Origin, TenantID: r.TenantID, ReservationID: r.TargetID,
	}
	after := struct {
		*Event
		Window json.RawMessage `json:"resource_window"` // any JSON, in place of the event's text
	}{Event: &event}
	if err := json.Unmarshal(r.After, &after); err != nil {
		return Event{}, false, fmt.Errorf("reservations: parse audit record %d: %w", r.AuditID, err)
	}
	event.ResourceWindow = string(after.Window)
	return event, true, nil
}
