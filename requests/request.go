package requests

import (
	"time"

	"github.com/google/uuid"

	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/internal/lanes"
	"github.com/holdfast/holdfast/reservations"
)

// Status is the state of a request. Done and Failed are final.
type Status string

// The statuses. A Waiting request waits in line for units.
const (
	Queued     Status = "queued"
	Processing Status = "processing"
	Waiting    Status = "waiting"
	Done       Status = "done"
	Failed     Status = "failed"
)

// Decided reports whether the request was decided: it waits in line or is finished.
func (s Status) Decided() bool { return s.Finished() || s == Waiting }

// Finished reports whether the status is final.
func (s Status) Finished() bool { return s == Done || s == Failed }

// Kind is what a request asks for.
type Kind string

// Add asks for more units of a variant. Set asks for a quantity that replaces
// the units that the cart holds. Wait is an Add that waits in line if it comes up
// short. Several asks for all units of several lines,
// or, if Lines.Partial is set, for those that there are.
const (
	Add     Kind = "add"
	Set     Kind = "set"
	Wait    Kind = "wait"
	Several Kind = "lines"
)

// Reason is the reason why a request failed.
type Reason string

// The reasons.
const (
	OutOfStock     Reason = Reason(inventory.OutOfStock)
	UnknownVariant Reason = Reason(inventory.UnknownVariant)
	UnknownKit     Reason = Reason(inventory.UnknownKit)
	NoAllotment    Reason = Reason(inventory.NoAllotment)
	LimitExceeded  Reason = Reason(inventory.LimitExceeded)
	NotOnSale      Reason = Reason(inventory.NotOnSale)
	NotAllowed     Reason = Reason(inventory.NotAllowed)
	ExpiredInQueue Reason = Reason(inventory.ExpiredInQueue)
	Cancelled      Reason = "cancelled"
	PartOfKit      Reason = Reason(inventory.PartOfKit)
	InternalError  Reason = "internal_error"
)

// Units is which units of a block a request asks for, or the allotment of a variant.
// One of the fields is set.
type Units struct {
	// IDs are the units, as many as the request's quantity.
	IDs []string `json:"unit_ids,omitempty"`
	// Any asks for any units, as many as the request's quantity.
	Any bool `json:"any_of,omitempty"`
	// Contiguous asks for any neighbours: units with consecutive positions.
	Contiguous bool `json:"contiguous,omitempty"`
	// Allotment asks for units that are set aside. To set a quantity changes what
	// the cart holds from it.
	Allotment string `json:"allotment,omitempty"`
}

// Lines is what a request of kind Several asks for.
type Lines struct {
	// Items has 1 to 50 lines.
	Items []Line `json:"lines"`
	// Partial asks for what there is of each line. Otherwise the request holds
	// all units of all lines, or none.
	Partial bool `json:"partial,omitempty"`
}

// Line is a line of a request: units of a variant, of its allotment or of a block
// (VariantID and Units), of one of several variants (OneOf), or a kit (KitID).
type Line struct {
	VariantID string `json:"variant_id,omitempty"`
	// Quantity is in units, or in kits, 1 to 1,000,000.
	Quantity int32  `json:"quantity"`
	Units    *Units `json:"units,omitempty"`
	// OneOf are variants in the order of preference, 1 to 20. The first that has
	// all units serves the line. With Split each gives what it has, in their
	// order, until the quantity is reached. Unknown variants are skipped.
	OneOf []string `json:"one_of,omitempty"`
	Split bool     `json:"split,omitempty"`
	// KitID is the kit that is asked for, Quantity times, and Parts are its parts
	// as they were when the request was accepted, none if it was unknown.
	KitID string    `json:"kit_id,omitempty"`
	Parts []KitPart `json:"parts,omitempty"`
}

// KitPart is a part of a kit: units of a variant.
type KitPart = inventory.KitPart

// LineOutcome is what a request holds for one of its lines.
type LineOutcome struct {
	Line
	// Held is how many units, or whole kits, are held for the line, or were
	// committed since.
	Held int64
	// Reason is why the line came up short, "" if it did not.
	Reason Reason
	// Reservations are those made for the line, in any status.
	Reservations []reservations.Reservation
}

// Request is a row of the status table. Times are the database's.
type Request struct {
	TenantID, RequestID uuid.UUID
	// Sequence is the order of admission.
	Sequence          int64
	Kind              Kind
	CartID, VariantID string
	Quantity          int32
	// Units is which units of a block the request asks for, or from which
	// allotment; nil for a request for a variant, which may be a block too: then
	// any units will do.
	Units *Units
	// Lines are those of a request of kind Several, whose VariantID is "/", which no
	// variant has, and whose Quantity is that of all lines.
	Lines         *Lines
	Lane          lanes.Lane
	Slot          int16
	Status        Status
	Reason        Reason
	ActorID       string
	CorrelationID string
	// Attempts and ClaimEpoch count the claims of the isolated retry. They are
	// 0 for a request that never failed on its own.
	Attempts   int16
	ClaimEpoch int32
	RetryOf    *uuid.UUID
	// CustomerID is whose limits apply; empty: the cart is its own customer.
	CustomerID string
	// ParentID is the request of several lines of which this one is a part, nil
	// for others, and Line the place of the line, from 0. KitID is the kit of
	// which it is a part. OpenParts is how many
	// parts of a request of several lines are undecided, nil if they are decided
	// together.
	ParentID  *uuid.UUID
	Line      int16
	KitID     string
	OpenParts *int16
	// TraceParent is the W3C trace context of the call that was admitted, ""
	// unless it was sampled.
	TraceParent string
	CreatedAt   time.Time
	UpdatedAt   time.Time
}

// View is a request with its position and its reservation.
type View struct {
	Request
	// Position counts the earlier undecided requests for the same hot variant,
	// up to 1,000; nil in the normal lane and once the request is finished. Of a
	// Waiting request it is the place in line, from 1 to 10,000.
	Position *int64
	// Reservation is the hold that was made for the request, nil if there is
	// none. Its id is the request's.
	Reservation *reservations.Reservation
	// Outcomes are those of the lines of a request of kind Several, in their
	// order.
	Outcomes []LineOutcome
}

// Cart is one page of a cart.
type Cart struct {
	// Reservations have any status, newest first. Unfinished are the unfinished
	// requests, oldest first.
	Reservations []reservations.Reservation
	Unfinished   []Request
	// Failed are the latest 20 failed requests, latest first. They are on every
	// page.
	Failed []Request
	// NextCursor is the cursor of the next page. It is empty on the last page.
	NextCursor string
}

// Removed is the result of a removal.
type Removed struct {
	// Released are the cart's holds that were released, without those that were
	// past their deadline. Cancelled are the cart's requests that were
	// cancelled before they were decided.
	Released  []reservations.Reservation
	Cancelled []uuid.UUID
}
