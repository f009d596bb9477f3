package inventory

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/audit"
)

// Kind is the resource kind of a variant's holds in the reservations table.
const Kind = "inventory.variant"

// Limits of what a caller may ask for. Anything outside is an [*InvalidError].
const (
	MaxStock    = 1_000_000_000       // units a variant may be set or adjusted to
	MaxQuantity = 1_000_000           // units of one request, and the largest max_per_cart
	MaxTTL      = 30 * 24 * time.Hour // longest hold_ttl_seconds
	MaxIDLength = 128                 // characters of a variant, cart or block id
)

// Lane wishes a stock may carry. LaneAuto leaves the choice to the lanes' own detection.
const (
	LaneAuto   = "auto"
	LaneHot    = "hot"
	LaneNormal = "normal"
)

// Who may add units of a variant to a cart: everybody, or who has an admission token. It is kept here and asked for
// elsewhere.
const (
	AdmissionOpen  = "open"
	AdmissionToken = "token"
)

// Outcomes of the verbs that change a stock.
var (
	// ErrUnknownVariant says that the tenant has no such variant.
	ErrUnknownVariant = errors.New("unknown variant")
	// ErrStockRequired says that a new variant was set without a stock and without tracked false.
	ErrStockRequired = errors.New("stock is required for a new variant")
	// ErrBelowReserved says that the change would leave fewer units than are reserved on a tracked variant without
	// backorder.
	ErrBelowReserved = errors.New("stock would be below what is reserved")
)

// Stock is one variant's counters and settings.
type Stock struct {
	TenantID  uuid.UUID
	VariantID string
	// Stock is the number of units that exist; below 0 only after backordered checkouts.
	Stock int64
	// Reserved is the number of units held, due holds included until they are expired.
	Reserved int64
	// Available is Stock − Reserved + what is held past its deadline by the database's clock; below 0 while backordered. Of
	// the due holds the DueMax that are longest due are counted: while more of a variant wait to be expired, it is a lower
	// bound of what a request can have.
	Available int64
	// Tracked false means digital: adding it to a cart takes no hold and touches no counter.
	Tracked bool
	// Backorder allows Reserved to exceed Stock.
	Backorder bool
	// HoldTTLSeconds is how long a hold lasts; nil: the program's default.
	HoldTTLSeconds *int32
	// MaxPerCart is how many units one cart may hold; nil: no limit of its own.
	MaxPerCart *int32
	// Lane is the wish: LaneAuto, LaneHot or LaneNormal.
	Lane string
	// Admission is AdmissionOpen or AdmissionToken.
	Admission string
	CreatedAt time.Time
	UpdatedAt time.Time
}

// due is how many units are held past their deadline, as far as Available counts them.
func (s Stock) due() int64 { return s.Available - s.Stock + s.Reserved }

// covered repeats the CHECK inventory_stocks_no_oversell.
func (s Stock) covered() bool { return s.Reserved <= s.Stock || s.Backorder || !s.Tracked }

// InvalidError is bad input: the field it came in, by its JSON name, and what is wrong with it, in words for the caller.
type InvalidError struct {
	Field   string
	Message string
}

func (e *InvalidError) Error() string { return e.Field + ": " + e.Message }

// ValidateID checks a variant, cart or block id: 1 to [MaxIDLength] characters of UTF-8 without control characters.
// The error is an [*InvalidError] that names field.
func ValidateID(field, id string) error {
	if id == "" {
		return &InvalidError{Field: field, Message: "must not be empty"}
	}
	if !utf8.ValidString(id) {
		return &InvalidError{Field: field, Message: "must be valid UTF-8"}
	}
	length := 0
	for _, r := range id {
		if unicode.IsControl(r) {
			return &InvalidError{Field: field, Message: "must not contain control characters"}
		}
		if length++; length > MaxIDLength {
			return &InvalidError{Field: field, Message: "must be at most " + strconv.Itoa(MaxIDLength) + " characters"}
		}
	}
	return nil
}

// DueMax is how many due holds of a variant a read of its stock counts at most, so that a read costs the same however many
// wait to be expired.
const DueMax = 200

// selectStocks begins every read of stocks. The sub-select around the clock makes it one value for the statement, so
// that an index can bound the sum to what is due, and the order is that index's, so that the limit, DueMax, ends the read.
const selectStocks = `
SELECT
    s.tenant_id,
    s.variant_id,
    s.stock,
    s.reserved,
    s.stock - s.reserved + due.quantity AS available,
    s.tracked,
    s.backorder,
    s.hold_ttl_seconds,
    s.max_per_cart,
    s.lane,
    s.admission,
    s.created_at,
    s.updated_at
FROM inventory_stocks AS s
CROSS JOIN LATERAL (
    SELECT COALESCE(sum(longest.quantity), 0)::bigint AS quantity
    FROM (
        SELECT r.quantity
        FROM reservations AS r
        WHERE r.tenant_id = s.tenant_id
          AND r.resource_kind = '` + Kind + `'
          AND r.resource_key = s.variant_id
          AND r.status = 'held'
          AND r.expires_at <= (SELECT clock_timestamp())
        ORDER BY r.expires_at
        LIMIT 200
    ) AS longest
) AS due
`

// queryer is a pool, a connection or a transaction.
type queryer interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// snapshot is a stock as the audit log keeps it.
type snapshot struct {
	VariantID      string `json:"variant_id"`
	Stock          int64  `json:"stock"`
	Reserved       int64  `json:"reserved"`
	Tracked        bool   `json:"tracked"`
	Backorder      bool   `json:"backorder"`
	HoldTTLSeconds *int32 `json:"hold_ttl_seconds"`
	MaxPerCart     *int32 `json:"max_per_cart"`
	Lane           string `json:"lane"`
	Admission      string `json:"admission"`
}

// entry is the audit entry for one change of a stock. A nil before means that the variant is new.
func entry(action string, before *Stock, after Stock, origin audit.Origin) (audit.Entry, error) {
	e := audit.Entry{
		TenantID: after.TenantID,
		TargetID: audit.TargetOf(after.TenantID, "stock", after.VariantID),
		Action:   action,
		Origin:   origin,
	}
	var err error
	if before != nil {
		if e.Before, err = before.encode(); err != nil {
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
	})
	if err != nil {
		return nil, fmt.Errorf("encode stock %s: %w", s.VariantID, err)
	}
	return b, nil
}
