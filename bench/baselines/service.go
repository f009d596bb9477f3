package baselines

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/internal/tenants"
)

// Holder holds units: one of this package's baselines.
type Holder interface {
	Hold(ctx context.Context, r Request) error
}

type addItemInput struct {
	Authorization string `header:"Authorization"`
	CartID        string `path:"cart_id" minLength:"1" maxLength:"128"`
	Body          struct {
		VariantID string `json:"variant_id" minLength:"1" maxLength:"128"`
		Quantity  int32  `json:"quantity" minimum:"1" maximum:"1000000"`
	}
}

type addItemOutput struct {
	Location string `header:"Location"`
	Body     requestJSON
}

// requestJSON and reservationJSON have the fields of the API's own.
type requestJSON struct {
	RequestID   uuid.UUID        `json:"request_id"`
	Status      string           `json:"status"`
	Reason      *string          `json:"reason"`
	CartID      string           `json:"cart_id"`
	VariantID   string           `json:"variant_id"`
	Quantity    int32            `json:"quantity"`
	Lane        string           `json:"lane"`
	Position    *int64           `json:"position"`
	Reservation *reservationJSON `json:"reservation"`
	CreatedAt   time.Time        `json:"created_at"`
	UpdatedAt   time.Time        `json:"updated_at"`
}

type reservationJSON struct {
	ReservationID uuid.UUID  `json:"reservation_id"`
	RequestID     uuid.UUID  `json:"request_id"`
	CartID        string     `json:"cart_id"`
	VariantID     string     `json:"variant_id"`
	Quantity      int64      `json:"quantity"`
	Status        string     `json:"status"`
	ReleaseReason *string    `json:"release_reason"`
	FirstHeldAt   time.Time  `json:"first_held_at"`
	HeldAt        time.Time  `json:"held_at"`
	ExpiresAt     time.Time  `json:"expires_at"`
	EndedAt       *time.Time `json:"ended_at"`
}

// service is what the handlers share.
type service struct {
	keys   *tenants.Authenticator
	holder Holder
	carts  *Carts
}

// NewService is a synchronous service: add-to-cart with the given holder, and
// the carts' other verbs. It has the same router, the same shapes and the same
// check of the key as Holdfast's API; the answer is 200 with the outcome. db is
// for the keys.
func NewService(db *pgxpool.Pool, holder Holder, carts *Carts) http.Handler {
	mux := http.NewServeMux()
	config := huma.DefaultConfig("Synchronous", "1")
	config.CreateHooks = nil // no $schema in the answers
	api := humago.New(mux, config)
	s := &service{keys: tenants.NewAuthenticator(db, tenants.Config{}), holder: holder, carts: carts}
	huma.Register(api, huma.Operation{
		OperationID: "add-item", Method: http.MethodPost, Path: "/v1/carts/{cart_id}/items",
	}, s.addItem)
	s.registerCarts(api)
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprintln(w, "ok") })
	return mux
}

// tenant is the tenant whose key the call has.
func (s *service) tenant(ctx context.Context, authorization string) (uuid.UUID, error) {
	who, err := s.keys.Authenticate(ctx, strings.TrimPrefix(authorization, "Bearer "))
	if err != nil {
		return uuid.Nil, huma.Error401Unauthorized("unknown key")
	}
	return who.TenantID, nil
}

func (s *service) addItem(ctx context.Context, in *addItemInput) (*addItemOutput, error) {
	tenant, err := s.tenant(ctx, in.Authorization)
	if err != nil {
		return nil, err
	}
	r := Request{
		TenantID: tenant, HoldID: uuid.Must(uuid.NewV7()), CartID: in.CartID, VariantID: in.Body.VariantID,
		Quantity: int64(in.Body.Quantity), TTL: s.carts.TTL,
	}
	return answered(r, s.holder.Hold(ctx, r))
}

// answered is the response to a decided call: sold out is an outcome, any other
// error is a 500.
func answered(r Request, err error) (*addItemOutput, error) {
	if err != nil && !errors.Is(err, ErrSoldOut) {
		return nil, err
	}
	return decided(r, err == nil), nil
}

// decided is the answer.
func decided(r Request, held bool) *addItemOutput {
	now := time.Now().UTC()
	body := requestJSON{
		RequestID: r.HoldID, Status: "done", CartID: r.CartID, VariantID: r.VariantID, Quantity: int32(r.Quantity), Lane: "normal",
		CreatedAt: now, UpdatedAt: now,
	}
	if held {
		body.Reservation = &reservationJSON{
			ReservationID: r.HoldID, RequestID: r.HoldID, CartID: r.CartID, VariantID: r.VariantID, Quantity: r.Quantity,
			Status: "held", FirstHeldAt: now, HeldAt: now, ExpiresAt: now.Add(r.lasts()),
		}
	} else {
		reason := "out_of_stock"
		body.Status, body.Reason = "failed", &reason
	}
	return &addItemOutput{Location: "/v1/requests/" + r.HoldID.String(), Body: body}
}
