package inventory

import (
	"github.com/google/uuid"

	"github.com/holdfast/holdfast/audit"
)

// Ask is one request for units of a variant.
type Ask struct {
	// RequestID becomes the id of the reservation, so that the primary key forbids a second one for the same request.
	TenantID, RequestID uuid.UUID
	CartID, VariantID   string
	Quantity            int64
	// Replace asks for Quantity units in place of everything the cart holds of the variant, both or neither.
	Replace bool
	// Stale says that the request waited longer than its lane allows.
	Stale  bool
	Origin audit.Origin
}

// Verdict is what was decided about an ask: Granted, Untracked, or the reason of a rejection; or Locked.
type Verdict string

// The verdicts, in order of precedence: the first that applies is given.
const (
	ExpiredInQueue Verdict = "expired_in_queue" // Stale
	UnknownVariant Verdict = "unknown_variant"  // the tenant has no such variant
	Untracked      Verdict = "untracked"        // a digital variant: granted, nothing is held
	LimitExceeded  Verdict = "limit_exceeded"   // the cart would hold more than max_per_cart
	OutOfStock     Verdict = "out_of_stock"     // more than is available, and no backorder
	Granted        Verdict = "granted"          // held

	// Locked is not a decision: another transaction has the stock locked (HoldFreeTx). It comes after ExpiredInQueue.
	Locked Verdict = "locked"
)

// Rejected reports whether the verdict is a reason not to grant.
func (v Verdict) Rejected() bool { return v != Granted && v != Untracked && v != Locked }
