package inventory

import (
	"github.com/google/uuid"

	"github.com/holdfast/holdfast/audit"
)

// HoldRequest is a request for units of a variant.
type HoldRequest struct {
	// RequestID becomes the id of the reservation, so that the primary key
	// rules out a second one for the same request.
	TenantID, RequestID uuid.UUID
	CartID, VariantID   string
	Quantity            int64
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
	// Stale means that the request waited longer than its lane allows.
	Stale  bool
	Origin audit.Origin
}

// Outcome is what was decided about a request: Granted, Untracked, or the
// reason of a rejection; or Locked.
type Outcome string

// The outcomes, in order of precedence: the first that applies is returned.
const (
	ExpiredInQueue Outcome = "expired_in_queue" // Stale
	UnknownVariant Outcome = "unknown_variant"  // the tenant has no such variant or block, or the block no such unit
	Untracked      Outcome = "untracked"        // a digital variant: granted, nothing is held; after Cancelled, if Replace is set
	Cancelled      Outcome = "cancelled"        // what it replaces is locked to a checkout
	LimitExceeded  Outcome = "limit_exceeded"   // the cart would hold more than max_per_cart; more than postings.UnitsMax units of a block
	OutOfStock     Outcome = "out_of_stock"     // more than is available, and no backorder; a named unit is taken
	Granted        Outcome = "granted"          // held

	// Locked is not a decision: another transaction has locked the stock
	// (HoldUnlockedTx), or a hold of the cart on which the decision depends
	// (HoldStockTx). The precedence of a locked stock is after ExpiredInQueue,
	// that of a locked hold before the first outcome that depends on it.
	Locked Outcome = "locked"
)

// Rejected reports whether the outcome is the reason of a rejection.
func (v Outcome) Rejected() bool { return v != Granted && v != Untracked && v != Locked }
