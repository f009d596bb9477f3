package httpapi

import (
	"reflect"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/google/uuid"

	"github.com/holdfast/holdfast/internal/inventory"
)

// recordedState documents the states in an audit row. Each kind of target has some
// of these members.
type recordedState struct {
	Status         string     `json:"status,omitempty" doc:"Of a reservation, a request or a checkout."`
	Quantity       int64      `json:"quantity,omitempty"`
	ResourceKind   string     `json:"resource_kind,omitempty" doc:"What a reservation is of; inventory.variant is a variant."`
	ResourceKey    string     `json:"resource_key,omitempty" doc:"The variant of a reservation."`
	ResourceWindow *windowDoc `json:"resource_window,omitempty"`
	HolderID       string     `json:"holder_id,omitempty" doc:"The cart of a reservation."`
	ExpiresAt      *time.Time `json:"expires_at,omitempty"`
	ReleaseReason  string     `json:"release_reason,omitempty"`
	UnitIDs        []string   `json:"unit_ids,omitempty"`
	CheckoutID     uuid.UUID  `json:"checkout_id,omitempty" format:"uuid"`

	CartID    string    `json:"cart_id,omitempty"`
	VariantID string    `json:"variant_id,omitempty"`
	Reason    string    `json:"reason,omitempty" doc:"Why a request failed, or a checkout ended."`
	RetriedBy uuid.UUID `json:"retried_by,omitempty" format:"uuid"`
	RetryOf   uuid.UUID `json:"retry_of,omitempty" format:"uuid"`

	Stock          int64           `json:"stock,omitempty"`
	Reserved       int64           `json:"reserved,omitempty"`
	Tracked        bool            `json:"tracked,omitempty"`
	Backorder      bool            `json:"backorder,omitempty"`
	HoldTTLSeconds *int32          `json:"hold_ttl_seconds,omitempty" nullable:"true"`
	MaxPerCart     *int32          `json:"max_per_cart,omitempty" nullable:"true"`
	Admission      string          `json:"admission,omitempty"`
	PreorderMax    *int64          `json:"preorder_max,omitempty"`
	Sale           *inventory.Sale `json:"sale,omitempty" doc:"The rules of the sale of a stock."`

	Lane string `json:"lane,omitempty"`
	Slot int16  `json:"slot,omitempty" doc:"The stream in which a hot variant is decided."`

	Alert            string     `json:"alert,omitempty" doc:"Of a checkout that needs a person."`
	PaymentReference string     `json:"payment_reference,omitempty"`
	Holds            int32      `json:"holds,omitempty" doc:"How many reservations a checkout has."`
	Units            int64      `json:"units,omitempty" doc:"How many units a checkout has."`
	Deadline         *time.Time `json:"deadline,omitempty"`
}

// windowDoc documents the window of a reservation of the kernel.
type windowDoc struct {
	Start time.Time `json:"start"`
	End   time.Time `json:"end"`
}

// documentStates gives the states of an audit row their schema.
func documentStates(r huma.Registry, s *huma.Schema) *huma.Schema {
	state := r.Schema(reflect.TypeFor[recordedState](), true, "RecordedState")
	for _, name := range []string{"before", "after"} {
		s.Properties[name] = &huma.Schema{Description: s.Properties[name].Description, AnyOf: []*huma.Schema{state, {Type: "null"}}}
	}
	return s
}

// TransformSchema documents the states, for huma.
func (recordJSON) TransformSchema(r huma.Registry, s *huma.Schema) *huma.Schema {
	return documentStates(r, s)
}

// TransformSchema documents the states, for huma.
func (eventJSON) TransformSchema(r huma.Registry, s *huma.Schema) *huma.Schema {
	return documentStates(r, s)
}
