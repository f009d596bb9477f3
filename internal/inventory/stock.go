package inventory

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/invalid"
	"github.com/holdfast/holdfast/internal/lanes"
)

// Kind is the resource kind of a variant's holds in the reservations table.
const Kind = "inventory.variant"

// Limits of a caller's values. A value outside is an [*InvalidError].
const (
	MaxStock    = 1_000_000_000       // units a variant may be set or adjusted to
	MaxQuantity = 1_000_000           // units of one request, and the largest max_per_cart
	MaxTTL      = 30 * 24 * time.Hour // longest hold_ttl_seconds
	MaxIDLength = 128                 // characters of a variant, cart or block id
)

// Which callers may add units of a variant to a cart: all callers, or those
// with an admission token. This package only stores it; other packages check
// it.
const (
	AdmissionOpen  = "open"
	AdmissionToken = "token"
)

// Outcomes of the verbs that change a stock.
var (
	// ErrCounted means that a block was named by the id of a variant whose units
	// are only counted.
	ErrCounted = errors.New("the variant has a stock of counted units")
	// ErrUnknownVariant means that the tenant has no such variant.
	ErrUnknownVariant = errors.New("unknown variant")
	// ErrStockRequired means that a new variant was set without a stock and
	// without tracked false.
	ErrStockRequired = errors.New("stock is required for a new variant")
	// ErrBelowReserved means that the change would leave fewer units than are
	// reserved on a tracked variant without backorder.
	ErrBelowReserved = errors.New("stock would be below what is reserved")
)

// Stock is one variant's counters and settings.
type Stock struct {
	TenantID  uuid.UUID
	VariantID string
	// Stock is the number of units that exist; below 0 only after backordered
	// checkouts.
	Stock int64
	// Reserved is the number of units held, due holds included until they are
	// expired.
	Reserved int64
	// Available is Stock − Reserved + what is held past its deadline by the
	// database's clock; below 0 while backordered. It counts the DueMax due
	// holds that are longest due: while more of a variant wait to be expired,
	// it is a lower bound of what a request can get.
	Available int64
	// Tracked false means digital: adding it to a cart takes no hold and
	// touches no counter.
	Tracked bool
	// Backorder allows Reserved to exceed Stock.
	Backorder bool
	// HoldTTLSeconds is how long a hold lasts; nil: the program's default.
	HoldTTLSeconds *int32
	// MaxPerCart is how many units one cart may hold at one time; nil: no limit.
	MaxPerCart *int32
	// NamedUnits means that the variant is a block: its units have their own
	// identity, and Stock is how many of them are not committed. Only an import
	// of units changes Stock.
	NamedUnits bool
	// Lane is the lane that the tenant wishes. CurrentLane is the one that takes
	// new requests now. This package does not read it: see queues/hot.
	Lane        lanes.Wish
	CurrentLane lanes.Lane `db:"-"`
	// Admission is AdmissionOpen or AdmissionToken.
	Admission string
	// PreorderMax is how far Reserved may exceed Stock if Backorder is set, and
	// part of Available; nil: without limit.
	PreorderMax *int64
	// Sale has the rules of its sale, nil for none.
	Sale      *Sale
	CreatedAt time.Time
	UpdatedAt time.Time
}

// Sale is when and how a variant is sold, and in which group. A nil field is no
// rule.
type Sale struct {
	// StartsAt and EndsAt bound when units can be added, by the database's clock
	// when the request is decided. What was held before the end can be checked
	// out, and its quantity lowered. Both are of the years 1970 to 9999 in UTC.
	StartsAt *time.Time `json:"starts_at,omitempty"`
	EndsAt   *time.Time `json:"ends_at,omitempty"`
	// QuantityMin is the least quantity of a cart, and QuantityStep of what its
	// quantity must be a multiple; both 1 to MaxQuantity.
	QuantityMin  *int32 `json:"quantity_min,omitempty"`
	QuantityStep *int32 `json:"quantity_step,omitempty"`
	// MaxPerCustomer is how many units a customer may hold and have committed, 1
	// to MaxQuantity: of those held in the last CustomerPeriodSeconds, or of all
	// that are on record. A changed quantity is a new hold.
	MaxPerCustomer        *int32 `json:"max_per_customer,omitempty"`
	CustomerPeriodSeconds *int32 `json:"customer_period_seconds,omitempty"`
	// Group is a group of variants, such as those of one product or the locations
	// of one variant. Its limit counts the units of all; see SetGroupTx.
	Group *string `json:"group,omitempty"`
	// ClaimSeconds is how long units are held that were offered to a request of
	// the waiting list, 1 to MaxTTL in seconds; nil: the time of any hold.
	ClaimSeconds *int32 `json:"claim_seconds,omitempty"`
}

// CustomerPeriodMax is the longest CustomerPeriodSeconds, ten years.
const CustomerPeriodMax = 10 * 366 * 24 * 60 * 60

// patched returns the rules after a patch, of which a zero value clears a rule,
// nil for none.
func (s *Sale) patched(p *Sale) *Sale {
	after := Sale{}
	if s != nil {
		after = *s
	}
	if p != nil {
		after.StartsAt, after.EndsAt = clearedTime(after.StartsAt, p.StartsAt), clearedTime(after.EndsAt, p.EndsAt)
		after.QuantityMin, after.QuantityStep = cleared(after.QuantityMin, p.QuantityMin), cleared(after.QuantityStep, p.QuantityStep)
		after.MaxPerCustomer = cleared(after.MaxPerCustomer, p.MaxPerCustomer)
		after.CustomerPeriodSeconds = cleared(after.CustomerPeriodSeconds, p.CustomerPeriodSeconds)
		after.Group = cleared(after.Group, p.Group)
		after.ClaimSeconds = cleared(after.ClaimSeconds, p.ClaimSeconds)
	}
	if after == (Sale{}) {
		return nil
	}
	return &after
}

// validate checks the rules against each other.
func (s *Sale) validate() error {
	switch {
	case s == nil:
	case s.StartsAt != nil && s.EndsAt != nil && !s.EndsAt.After(*s.StartsAt):
		return &InvalidError{Field: "sale_ends_at", Message: "must be after sale_starts_at"}
	case s.CustomerPeriodSeconds != nil && s.MaxPerCustomer == nil:
		return &InvalidError{Field: "customer_period_seconds", Message: "needs max_per_customer"}
	}
	return nil
}

// encode returns the rules as the column has them, nil for none.
func (s *Sale) encode() *string {
	if s == nil {
		return nil
	}
	text, err := json.Marshal(s)
	if err != nil {
		panic("inventory: the rules of a sale: " + err.Error()) // no value of its types fails
	}
	return new(string(text))
}

func clearedTime(field, value *time.Time) *time.Time {
	switch {
	case value == nil:
		return field
	case value.IsZero():
		return nil
	}
	return new(value.UTC().Truncate(time.Microsecond))
}

// due is how many units are held past their deadline, as far as Available
// counts them.
func (s Stock) due() int64 { return s.Available - s.Stock - s.preorders() + s.Reserved }

// preorders is how many units may be held beyond the stock, as far as Available
// counts them.
func (s Stock) preorders() int64 {
	if s.PreorderMax == nil {
		return 0
	}
	return *s.PreorderMax
}

// covered is the condition of the CHECK inventory_stocks_no_oversell.
func (s Stock) covered() bool {
	return s.Reserved <= s.Stock+s.preorders() || s.Backorder && s.PreorderMax == nil || !s.Tracked
}

// InvalidError is bad input: Field is where it came in, by its JSON name, and
// Message what is wrong with it, in words for the caller.
type InvalidError = invalid.Error

// ValidateID checks a variant, cart or block id: 1 to [MaxIDLength] characters
// of UTF-8 without control characters, not only dots and not only slashes.
// Clients and proxies remove dot segments and empty segments from a path
// (RFC 3986, section 5.2.4), some of them in percent-encoded form too.
//
// The error is an [*InvalidError] that names field.
func ValidateID(field, id string) error {
	if strings.Trim(id, ".") == "" || strings.Trim(id, "/") == "" {
		return &InvalidError{Field: field, Message: "must not be empty, only dots or only slashes"}
	}
	return invalid.Check(field, id, MaxIDLength)
}

// snapshot is a stock as the audit log keeps it.
type snapshot struct {
	VariantID      string     `json:"variant_id"`
	Stock          int64      `json:"stock"`
	Reserved       int64      `json:"reserved"`
	Tracked        bool       `json:"tracked"`
	Backorder      bool       `json:"backorder"`
	HoldTTLSeconds *int32     `json:"hold_ttl_seconds"`
	MaxPerCart     *int32     `json:"max_per_cart"`
	Lane           lanes.Wish `json:"lane"`
	Admission      string     `json:"admission"`
	PreorderMax    *int64     `json:"preorder_max,omitempty"`
	Sale           *Sale      `json:"sale,omitempty"`
}

// Target is the target of a stock's audit rows.
func Target(tenantID uuid.UUID, variantID string) uuid.UUID {
	return audit.TargetOf(tenantID, "stock", variantID)
}

// entry returns the audit entry for one change of a stock. A nil before means
// that the variant is new.
func entry(action string, before *Stock, after Stock, origin audit.Origin) (audit.Entry, error) {
	e := audit.Entry{
		TenantID: after.TenantID,
		TargetID: Target(after.TenantID, after.VariantID),
		Action:   action,
		Origin:   origin,
	}
	var err error
	if before != nil {
		e.Before, err = before.encode()
		if err != nil {
			return e, err
		}
	}
	e.After, err = after.encode()
	return e, err
}

func (s Stock) encode() (json.RawMessage, error) {
	b, err := json.Marshal(snapshot{
		VariantID: s.VariantID, Stock: s.Stock, Reserved: s.Reserved, Tracked: s.Tracked, Backorder: s.Backorder,
		HoldTTLSeconds: s.HoldTTLSeconds, MaxPerCart: s.MaxPerCart, Lane: s.Lane, Admission: s.Admission,
		PreorderMax: s.PreorderMax, Sale: s.Sale,
	})
	if err != nil {
		return nil, fmt.Errorf("encode stock %s: %w", s.VariantID, err)
	}
	return b, nil
}
