package inventory

import (
	"github.com/google/uuid"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/reservations"
)

// HoldRequest is a request for units of a variant.
type HoldRequest struct {
	// RequestID becomes the id of the reservation, so that the primary key
	// rules out a second one for the same request.
	TenantID, RequestID uuid.UUID
	CartID, VariantID   string
	// CustomerID is whose limits apply; empty: the cart is its own customer.
	CustomerID string
	Quantity   int64
	// UnitIDs are the units of a block that the request wants, Quantity of
	// them, all distinct. If it is empty and the variant is a block, any
	// Quantity units will do; neighbours, if Contiguous is set.
	UnitIDs    []string
	Contiguous bool
	// Block means that the request asks for units of a block: a variant of that
	// id whose units are only counted is unknown to it.
	Block bool
	// Replace releases everything the cart holds of the variant and holds
	// Quantity units, both or neither. Of a variant that is no longer tracked it
	// holds nothing.
	Replace bool
	// Set joins requests that follow one another: those of one set, other than 0,
	// are decided together. Of a set, those of one Line serve that line: the first
	// that has all its Quantity or, with Split, each with what it has until
	// Quantity is reached. Unless Partial is set, all lines are held or none. With
	// Partial each line is held as far as there are units. Their requests do not
	// Replace.
	Set, Line      int
	Split, Partial bool
	// KitID is the kit that the request is a part of. Of a set, the requests of a
	// line with Kits are the parts of that many kits: all of one kit are held, or
	// none.
	KitID string
	Kits  int64
	// AllotmentID is the allotment of the variant whose units the request wants,
	// empty for units that are for sale to all. It replaces only units of the same
	// source.
	AllotmentID string
	// Wait means that the request waits in line if it comes up short. Offered
	// means that it waits already, and is offered what is free.
	Wait, Offered bool
	// Stale means that the request waited longer than its lane allows.
	Stale  bool
	Origin audit.Origin
}

// dependsOnHolds reports whether the outcome depends on what the cart holds of
// the variant.
func (r *HoldRequest) dependsOnHolds(c *counter) bool {
	return r.Replace || c.MaxPerCart != nil || c.Sale != nil && (c.Sale.QuantityMin != nil || c.Sale.QuantityStep != nil)
}

// source is what the request takes its units from: the stock of its variant, or
// an allotment, which is decided like a stock.
func (r *HoldRequest) source() Ref { return sourceOf(r.TenantID, r.VariantID, r.AllotmentID) }

// isParticular reports whether the request wants units of a block that it names,
// or neighbours.
func (r *HoldRequest) isParticular() bool { return len(r.UnitIDs) > 0 || r.Contiguous }

// ownUnits returns the units that the request gives back.
func ownUnits(replaced []reservations.Reservation) (own []string) {
	for i := range replaced {
		own = append(own, replaced[i].UnitIDs...)
	}
	return own
}

// replaced returns what the request replaces of the holds of its cart, and the
// others.
func (r *HoldRequest) replaced(held []reservations.Reservation) (replaced, others []reservations.Reservation) {
	if !r.Replace {
		return nil, held
	}
	for i := range held {
		if held[i].AllotmentID == r.AllotmentID {
			replaced = append(replaced, held[i])
		} else {
			others = append(others, held[i])
		}
	}
	return replaced, others
}

// Outcome is what was decided about a request: Granted, Untracked, or the
// reason of a rejection; or why it was left undecided.
type Outcome string

// The outcomes, in order of precedence: the first that applies is returned.
const (
	ExpiredInQueue Outcome = "expired_in_queue"     // Stale
	UnknownVariant Outcome = "unknown_variant"      // the tenant has no such variant or block, or the block no such unit
	UnknownKit     Outcome = "unknown_kit"          // the part of an unknown kit: of NoKitPart
	NoAllotment    Outcome = "unknown_allotment"    // the variant has no such allotment, or it has ended
	Untracked      Outcome = "untracked"            // a digital variant: granted, nothing is held; after Cancelled, if Replace is set
	Cancelled      Outcome = "cancelled"            // what it replaces is locked to a checkout
	NotOnSale      Outcome = "not_on_sale"          // before the sale starts, or after it ended; what lowers a quantity is granted
	NotAllowed     Outcome = "quantity_not_allowed" // the cart would hold less than quantity_min, or no multiple of quantity_step
	LimitExceeded  Outcome = "limit_exceeded"       // the cart would hold more than max_per_cart, or its customer have more than max_per_customer; more than unitrows.UnitsMax units of a block
	PartOfKit      Outcome = "part_of_kit"          // what it replaces is a part of a kit
	OutOfStock     Outcome = "out_of_stock"         // more than is available, and no backorder; a named unit is taken; others wait in line
	Waiting        Outcome = "waiting"              // as OutOfStock, of a request that waits in line
	Granted        Outcome = "granted"              // held
	NotNeeded      Outcome = "not_needed"           // of a set: another request serves the line, or another line is short

	// The others are not decisions: another transaction has locked a row on
	// which the decision depends, and nothing is written for the request. The
	// later requests of its cart for the variant have the same outcome.
	//
	// Locked is of a locked stock (HoldUnlockedTx); its precedence is after
	// ExpiredInQueue. LockedHold is of a hold of the cart; its precedence is
	// before the first outcome that depends on it. LockedDue is of a due hold whose unit the request may
	// need; its precedence is that of OutOfStock.
	Locked     Outcome = "locked"
	LockedHold Outcome = "locked_hold"
	LockedDue  Outcome = "locked_due"
)

// Decided reports whether the request was decided.
func (v Outcome) Decided() bool { return v != Locked && v != LockedHold && v != LockedDue }

// Rejected reports whether the outcome is the reason of a rejection.
func (v Outcome) Rejected() bool {
	return v != Granted && v != Untracked && v != NotNeeded && v != Waiting && v.Decided()
}
