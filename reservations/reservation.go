package reservations

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/reservationrows"
)

// Reservation is a row of the reservations table: what is reserved
// (ResourceKind, ResourceKey, ResourceWindow), for whom (HolderID), how many
// units (Quantity), until when (ExpiresAt), and how it ended (Status,
// ReleaseReason, EndedAt). Times are the database's.
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

// The release reasons of a shop. TTL is the reason of an expiry and can't be
// given by a caller.
const (
	CartRemoved   = reservationrows.CartRemoved
	PaymentFailed = reservationrows.PaymentFailed
	Abandoned     = reservationrows.Abandoned
	Replaced      = reservationrows.Replaced
	Operator      = reservationrows.Operator
	TTL           = reservationrows.TTL
)

// ReleaseReasons are the reasons that a caller may give for a variant's hold,
// through package inventory or the HTTP API.
var ReleaseReasons = reservationrows.ReleaseReasons

var (
	// ErrNotFound means that the tenant has no such reservation.
	ErrNotFound = reservationrows.ErrNotFound
	// ErrLifetimeExceeded means that an extension would pass the lifetime cap.
	ErrLifetimeExceeded = reservationrows.ErrLifetimeExceeded
	// ErrCheckoutInProgress means that a hold is locked to a checkout that has
	// not ended: only that checkout can commit or release it.
	ErrCheckoutInProgress = reservationrows.ErrCheckoutInProgress
)

// ConflictError means that the reservation named by ID is not in the status a
// verb expects (Expected): it has ended, or it is past its deadline. Actual is
// the status that was found. It is Expired also for a hold that is due and not
// swept yet.
type ConflictError = reservationrows.ConflictError

// Get returns one reservation of the tenant, of any kind, or ErrNotFound. It
// reads through db, a pool or a transaction, and locks nothing. A hold that is
// past its deadline by the database's clock is returned as Expired, with reason
// TTL, even before its expiry is recorded; until then EndedAt is nil.
func Get(ctx context.Context, db audit.Querier, tenantID, reservationID uuid.UUID) (Reservation, error) {
	r, err := reservationrows.Get(ctx, db, tenantID, reservationID)
	return r, prefixed(err)
}

// The names of the events: the Action of a reservation's audit records.
const (
	EventHeld      = reservationrows.EventHeld
	EventExtended  = reservationrows.EventExtended
	EventCommitted = reservationrows.EventCommitted
	EventReleased  = reservationrows.EventReleased
	EventExpired   = reservationrows.EventExpired
)

// ErrNotEvent means that an audit record is not of a reservation.
var ErrNotEvent = errors.New("reservations: not an event of a reservation")

// Event is one transition of a reservation of any kind, a variant's too, as the
// audit log recorded it in the transaction of the transition.
type Event struct {
	// Name is EventHeld, EventExtended, EventCommitted, EventReleased or
	// EventExpired.
	Name string
	// AuditID is the id of the record. The ids of one reservation are in the
	// order of what happened.
	AuditID int64
	// CreatedAt is when it was recorded, on the database's clock.
	CreatedAt time.Time
	// Origin is who asked for the transition, why, and under which correlation
	// id.
	audit.Origin
	TenantID      uuid.UUID
	ReservationID uuid.UUID
	// The rest is the reservation after the transition. ResourceWindow is JSON,
	// empty for a resource without windows.
	Status         Status
	ResourceKind   string
	ResourceKey    string
	ResourceWindow string
	HolderID       string
	Quantity       int64
	ExpiresAt      time.Time
	// ReleaseReason is the reason of EventReleased; TTL for EventExpired.
	ReleaseReason ReleaseReason
}

// ParseEvent reads the event of an audit record. It is for the handler of an
// audit.Subscription, which receives records of all kinds.
//
// Errors: ErrNotEvent for a record of something else, which a subscriber skips.
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
		return Event{}, fmt.Errorf("reservations: parse audit record %d: %w", r.AuditID, err)
	}
	return Event{
		Name: r.Action, AuditID: r.AuditID, CreatedAt: r.CreatedAt, Origin: r.Origin,
		TenantID: r.TenantID, ReservationID: r.TargetID,
		Status: after.Status, ResourceKind: after.ResourceKind, ResourceKey: after.ResourceKey,
		ResourceWindow: string(after.ResourceWindow), HolderID: after.HolderID, Quantity: after.Quantity,
		ExpiresAt: after.ExpiresAt, ReleaseReason: after.ReleaseReason,
	}, nil
}
