package baselines

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/google/uuid"
)

type cartInput struct {
	Authorization string `header:"Authorization"`
	CartID        string `path:"cart_id" minLength:"1" maxLength:"128"`
}

type itemInput struct {
	Authorization string `header:"Authorization"`
	CartID        string `path:"cart_id" minLength:"1" maxLength:"128"`
	VariantID     string `path:"variant_id" minLength:"1" maxLength:"128"`
}

type setItemInput struct {
	Authorization string `header:"Authorization"`
	CartID        string `path:"cart_id" minLength:"1" maxLength:"128"`
	VariantID     string `path:"variant_id" minLength:"1" maxLength:"128"`
	Body          struct {
		Quantity int32 `json:"quantity" minimum:"1" maximum:"1000000"`
	}
}

type checkoutOutput struct {
	Body struct {
		Committed []reservationJSON `json:"committed"`
	}
}

type removeOutput struct {
	Body struct {
		Released  int64       `json:"released"`
		Cancelled []uuid.UUID `json:"cancelled"`
	}
}

func (s *service) registerCarts(api huma.API) {
	huma.Register(api, huma.Operation{
		OperationID: "checkout-cart", Method: http.MethodPost, Path: "/v1/carts/{cart_id}/checkout",
	}, s.checkoutCart)
	huma.Register(api, huma.Operation{
		OperationID: "remove-item", Method: http.MethodDelete, Path: "/v1/carts/{cart_id}/items/{variant_id}",
	}, s.removeItem)
	huma.Register(api, huma.Operation{
		OperationID: "set-item", Method: http.MethodPatch, Path: "/v1/carts/{cart_id}/items/{variant_id}",
	}, s.setItem)
}

func (s *service) checkoutCart(ctx context.Context, in *cartInput) (*checkoutOutput, error) {
	tenant, err := s.tenant(ctx, in.Authorization)
	if err != nil {
		return nil, err
	}
	committed, err := s.carts.Checkout(ctx, tenant, in.CartID)
	if errors.Is(err, ErrCartEmpty) || errors.Is(err, ErrHoldExpired) {
		return nil, huma.Error409Conflict(err.Error())
	}
	if err != nil {
		return nil, err
	}
	out := &checkoutOutput{}
	out.Body.Committed = make([]reservationJSON, len(committed))
	now := time.Now().UTC()
	for i, h := range committed {
		out.Body.Committed[i] = reservationJSON{
			ReservationID: h.HoldID, RequestID: h.HoldID, CartID: in.CartID, VariantID: h.VariantID, Quantity: h.Quantity,
			Status: "committed", FirstHeldAt: h.HeldAt.UTC(), HeldAt: h.HeldAt.UTC(), ExpiresAt: h.ExpiresAt.UTC(), EndedAt: &now,
		}
	}
	return out, nil
}

func (s *service) removeItem(ctx context.Context, in *itemInput) (*removeOutput, error) {
	tenant, err := s.tenant(ctx, in.Authorization)
	if err != nil {
		return nil, err
	}
	released, err := s.carts.Remove(ctx, tenant, in.CartID, in.VariantID)
	if err != nil {
		return nil, err
	}
	out := &removeOutput{}
	out.Body.Cancelled = []uuid.UUID{}
	for i := range released {
		out.Body.Released += released[i].Quantity
	}
	return out, nil
}

func (s *service) setItem(ctx context.Context, in *setItemInput) (*addItemOutput, error) {
	tenant, err := s.tenant(ctx, in.Authorization)
	if err != nil {
		return nil, err
	}
	r := Request{
		TenantID: tenant, HoldID: uuid.Must(uuid.NewV7()), CartID: in.CartID, VariantID: in.VariantID,
		Quantity: int64(in.Body.Quantity), TTL: s.carts.TTL,
	}
	return answered(r, s.carts.Change(ctx, r))
}
