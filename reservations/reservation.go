package reservations

import (
	"context"

	"github.com/google/uuid"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/reservationrows"
)

// Reservation is a row of the reservations table: what is reserved (ResourceKind, ResourceKey, ResourceWindow), for whom
// (HolderID), how many units (Quantity), until when (ExpiresAt), and how it ended (Status, ReleaseReason, EndedAt). Times
// are the database's.
type Reservation = reservationrows.Reservation

// Status is where a reservation stands: Held, Committed, Released or Expired.
type Status = reservationrows.Status

// The four statuses. Held is the only one with a way out.
const (
	Held      = reservationrows.Held
	Committed = reservationrows.Committed
	Released  = reservationrows.Released
	Expired   = reservationrows.Expired
)

// ReleaseReason says why units were given back: one of the constants, or the caller's own word in their form; see
// Kernel.Release.
type ReleaseReason = reservationrows.ReleaseReason

// The release reasons of a shop. TTL is the reason of an expiry and can't be given by a caller.
const (
	CartRemoved   = reservationrows.CartRemoved
	PaymentFailed = reservationrows.PaymentFailed
	Abandoned     = reservationrows.Abandoned
	Replaced      = reservationrows.Replaced
	Operator      = reservationrows.Operator
	TTL           = reservationrows.TTL
)

// ReleaseReasons are the reasons that a caller may give for a variant's hold, through package inventory or the HTTP API.
var ReleaseReasons = reservationrows.ReleaseReasons

var (
	// ErrNotFound means that the tenant has no such reservation.
	ErrNotFound = reservationrows.ErrNotFound
	// ErrLifetimeExceeded means that an extension would pass the lifetime cap.
	ErrLifetimeExceeded = reservationrows.ErrLifetimeExceeded
)

// ConflictError means that the reservation named by ID is not in the status a verb expects (Expected): it has ended, or it
// is past its deadline. Actual is what was found; Expired also for one that is due and not swept yet.
type ConflictError = reservationrows.ConflictError

// Get returns one reservation of the tenant, of any kind, or ErrNotFound. It reads through db, a pool or a transaction,
// and locks nothing. A hold that is past its deadline by the database's clock is shown as Expired, with reason TTL, also
// before its expiry is recorded; then EndedAt is nil.
func Get(ctx context.Context, db audit.Querier, tenantID, reservationID uuid.UUID) (Reservation, error) {
	r, err := reservationrows.Get(ctx, db, tenantID, reservationID)
	return r, prefixed(err)
}
