package reservationrows

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/auditrows"
	"github.com/holdfast/holdfast/internal/pg"
	"github.com/holdfast/holdfast/internal/unitrows"
)

// Status is the status of a reservation.
type Status string

// The four statuses. All but Held are final.
const (
	Held      Status = "held"
	Committed Status = "committed"
	Released  Status = "released"
	Expired   Status = "expired"
)

// The actions of a reservation's audit rows.
const (
	EventHeld      = "reservation.held"
	EventExtended  = "reservation.extended"
	EventResized   = "reservation.resized"  // a part was committed, or the units of an allotment changed
	EventMoved     = "reservation.moved"    // to another holder
	EventReturned  = "reservation.returned" // committed units came back
	EventCommitted = "reservation.committed"
	EventReleased  = "reservation.released"
	EventExpired   = "reservation.expired"
)

// ReleaseReason is why a reservation was released or expired.
type ReleaseReason string

// The release reasons. TTL is the reason of an expiry, and Incomplete of a hold
// whose request has another line that came up short; a caller can't pass them.
const (
	CartRemoved   ReleaseReason = "cart_removed"
	PaymentFailed ReleaseReason = "payment_failed"
	Abandoned     ReleaseReason = "abandoned"
	Replaced      ReleaseReason = "replaced"
	Operator      ReleaseReason = "operator"
	Incomplete    ReleaseReason = "incomplete"
	TTL           ReleaseReason = "ttl"
)

// ReleaseReasons are the reasons a caller may give for a variant's hold. A
// kernel's caller may use its own.
var ReleaseReasons = []ReleaseReason{CartRemoved, PaymentFailed, Abandoned, Replaced, Operator}

// Reservation is a row of the reservations table. Times are the database's.
type Reservation struct {
	TenantID      uuid.UUID
	ReservationID uuid.UUID
	// ResourceKind and ResourceKey name what is reserved: "inventory.variant"
	// and the variant's id.
	ResourceKind string
	ResourceKey  string
	// ResourceWindow narrows it, as canonical JSON; empty for a resource
	// without windows.
	ResourceWindow string
	// HolderID is the holder: a cart. CustomerID is whose limits count it; empty:
	// the cart is its own customer.
	HolderID, CustomerID string
	// Quantity is in units, at least 1. ReturnedQuantity is how many of them came
	// back after they were committed.
	Quantity         int64
	ReturnedQuantity int64
	Status           Status
	ReleaseReason    ReleaseReason
	// FirstHeldAt is the time from which the lifetime cap counts. It survives a
	// change of quantity. HeldAt is when this row was made.
	FirstHeldAt, HeldAt, ExpiresAt time.Time
	// EndedAt is when it was committed, released or expired; nil while held.
	EndedAt *time.Time
	// UnitIDs are the units with their own identity that the hold reserved, one
	// for each of Quantity that was not returned, in the order of their positions.
	// Empty for counted units.
	UnitIDs []string
	// CheckoutID is the checkout that the hold is or was locked to; the zero id
	// for none.
	CheckoutID uuid.UUID
	// KitID is the kit that the hold is a part of; empty for none.
	KitID string
	// AllotmentID is the allotment whose units the hold took; empty for none. A
	// reservation with the holder SetAside is the units of the allotment that are
	// left. As it is locked, that of a hold which outlived its allotment may have a
	// suffix that no allotment has; see QueueLeaveAllotment.
	AllotmentID string
	// PartOf is the reservation of which this one was committed as a part; the zero
	// id for none.
	PartOf uuid.UUID
}

// SetAside is the holder of the units of an allotment, which no cart has as its id.
const SetAside = "/"

// IsSetAside reports whether the reservation is what is left of an allotment.
func (r *Reservation) IsSetAside() bool { return r.HolderID == SetAside && r.AllotmentID != "" }

// Due reports whether the reservation is held past its deadline at now, a
// reading of the database's clock.
func (r *Reservation) Due(now time.Time) bool { return r.Status == Held && !r.ExpiresAt.After(now) }

// InCheckout reports whether the reservation is held and locked to a checkout.
func (r *Reservation) InCheckout() bool { return r.Status == Held && r.CheckoutID != uuid.Nil }

// columns is the one column list of a Reservation, read by scan.
const columns = `r.tenant_id, r.reservation_id, r.resource_kind, r.resource_key, coalesce(r.resource_window, ''),
       r.holder_id, r.quantity, r.status,
       coalesce(r.release_reason, ''), r.first_held_at, r.held_at, r.expires_at, r.ended_at, r.unit_ids, r.checkout_id,
       coalesce(r.customer_id, ''), coalesce(r.kit_id, ''),
       coalesce(r.returned_quantity, 0), r.part_of, coalesce(r.allotment_id, '')`

// toReservation reads a row of columns.
func toReservation(row pgx.CollectableRow) (Reservation, error) { return scan(row) }

// clockColumn follows columns where toShown reads the row. As a sub-select it
// is one reading of the clock for all rows.
const clockColumn = `, (SELECT clock_timestamp())`

// toShown reads a row of columns and clockColumn as it is returned to callers:
// a hold is expired from its deadline on, whether or not its expiry is
// recorded. Until it is recorded, EndedAt is nil.
func toShown(row pgx.CollectableRow) (Reservation, error) {
	var now time.Time
	r, err := scan(row, &now)
	if err == nil && r.Due(now) {
		r.Status, r.ReleaseReason = Expired, TTL
	}
	r.AllotmentID = strings.TrimSuffix(r.AllotmentID, outlived)
	return r, err
}

// scan reads a row of columns, and the columns that the query adds. It scans
// the ids as [16]byte, because a uuid.UUID would be scanned as text.
func scan(row pgx.CollectableRow, added ...any) (r Reservation, err error) {
	var checkout, whole *[16]byte
	err = row.Scan(append([]any{
		(*[16]byte)(&r.TenantID), (*[16]byte)(&r.ReservationID), &r.ResourceKind, &r.ResourceKey, &r.ResourceWindow,
		&r.HolderID, &r.Quantity, (*string)(&r.Status),
		(*string)(&r.ReleaseReason), &r.FirstHeldAt, &r.HeldAt, &r.ExpiresAt, &r.EndedAt, &r.UnitIDs, &checkout,
		&r.CustomerID, &r.KitID,
		&r.ReturnedQuantity, &whole, &r.AllotmentID,
	}, added...)...)
	if checkout != nil {
		r.CheckoutID = *checkout
	}
	if whole != nil {
		r.PartOf = *whole
	}
	return r, err
}

// Ref names a reservation.
type Ref struct{ TenantID, ReservationID uuid.UUID }

// claim returns the units of the reservation.
func (r *Reservation) claim() unitrows.Claim {
	block := unitrows.Block{TenantID: r.TenantID, Block: r.ResourceKey}
	return unitrows.Claim{Block: block, ReservationID: r.ReservationID, UnitIDs: r.UnitIDs}
}

// Claims returns the units with their own identity of the reservations.
func Claims(rs []Reservation) (claims []unitrows.Claim) {
	for i := range rs {
		if len(rs[i].UnitIDs) > 0 {
			claims = append(claims, rs[i].claim())
		}
	}
	return claims
}

// Ref is the reservation's name.
func (r *Reservation) Ref() Ref { return Ref{r.TenantID, r.ReservationID} }

// ErrChanged means that a reservation has changed since the caller read it.
// Roll back, lock it, and read it again.
var ErrChanged = errors.New("a row has changed since it was read")

// exactly fails a batch whose guarded statement did not reach all n rows,
// because another transaction has changed one of them. The transaction must be
// rolled back.
func exactly(n int, verb string) func(pgconn.CommandTag) error {
	reached := pg.Reached(n, "reservations: "+verb)
	return func(tag pgconn.CommandTag) error {
		if err := reached(tag); err != nil {
			return fmt.Errorf("%w: %w", err, ErrChanged)
		}
		return nil
	}
}

// ErrNotFound means that the tenant has no such reservation.
var ErrNotFound = errors.New("reservations: not found")

// ErrLifetimeExceeded means that an extension would pass the lifetime cap.
var ErrLifetimeExceeded = errors.New("reservations: lifetime exceeded")

// ErrCheckoutInProgress means that a hold is locked to a checkout that has not
// ended: only that checkout can commit or release it.
var ErrCheckoutInProgress = errors.New("reservations: a checkout of the hold is in progress")

// ConflictError means that a reservation is not in the status a verb expects:
// it has ended, or it is past its deadline.
type ConflictError struct {
	ID       uuid.UUID
	Expected Status
	// Actual is the status that was found. It is Expired also for a hold that
	// is due and not swept yet.
	Actual Status
}

// Error names the reservation and both statuses.
func (e *ConflictError) Error() string {
	return fmt.Sprintf("reservations: %s is %s, not %s", e.ID, e.Actual, e.Expected)
}

// change changes the deadline, the checkout or the ending of the value, and
// returns the audit entry of that transition. A caller that changes another
// member, or moves it from one checkout to another, must add it to before.
func (r *Reservation) change(action string, origin audit.Origin, apply func(r *Reservation)) audit.Entry {
	was, inCheckout := r.ExpiresAt, r.CheckoutID != uuid.Nil
	apply(r)
	e := r.entry(action, origin)
	moved, locked := !r.ExpiresAt.Equal(was), !inCheckout && r.CheckoutID != uuid.Nil
	if moved || locked {
		e.Reservation.Before = before(was, locked)
	}
	return e
}

// before returns the members that an extension has changed as they were before:
// the deadline, and the checkout, of which there was none.
func before(deadline time.Time, locked bool) []byte {
	b := deadline.UTC().Truncate(time.Microsecond).AppendFormat([]byte(`{"expires_at":"`), time.RFC3339Nano)
	b = append(b, '"')
	if locked {
		b = append(b, `,"checkout_id":null`...)
	}
	return append(b, '}')
}

// entry returns the audit entry of a transition to the value.
func (r *Reservation) entry(action string, origin audit.Origin) audit.Entry {
	state := &auditrows.Reservation{
		ResourceKind: r.ResourceKind, ResourceKey: r.ResourceKey, ResourceWindow: r.ResourceWindow, HolderID: r.HolderID,
		Quantity: r.Quantity - r.ReturnedQuantity, ExpiresAt: r.ExpiresAt, ReleaseReason: string(r.ReleaseReason), CheckoutID: r.CheckoutID,
	}
	if len(r.UnitIDs) > 0 {
		state.UnitIDs = string(auditrows.AppendTexts(nil, r.UnitIDs))
	}
	return audit.Entry{TenantID: r.TenantID, TargetID: r.ReservationID, Action: action, Origin: origin, Reservation: state}
}
