package httpapi

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/holdfast/holdfast/inventory"
	"github.com/holdfast/holdfast/queues/hot"
	"github.com/holdfast/holdfast/requests"
)

// stockJSON is a stock as it is answered.
type stockJSON struct {
	VariantID      variantID `json:"variant_id"`
	Stock          int64     `json:"stock" doc:"Units that exist. Below 0 only after checkouts of a backordered variant."`
	Reserved       int64     `json:"reserved" doc:"Units held."`
	Available      int64     `json:"available" doc:"Units a new request can have: stock, less reserved, plus what is held past its deadline. Of a variant's holds past their deadline, the 200 oldest are counted: with more of them it is a lower bound."`
	Tracked        bool      `json:"tracked" doc:"False for a digital variant: requests for it are done at once and hold nothing."`
	Backorder      bool      `json:"backorder" doc:"Holds may go beyond the stock."`
	HoldTTLSeconds *int32    `json:"hold_ttl_seconds" doc:"How long a hold lasts; null for the service's default."`
	MaxPerCart     *int32    `json:"max_per_cart" doc:"How many units one cart may hold; null for no limit."`
	Admission      string    `json:"admission" enum:"open,token" doc:"token: who adds units to a cart needs an admission token."`
	Lane           string    `json:"lane" enum:"auto,hot,normal" doc:"The lane that is wished for."`
	CurrentLane    string    `json:"current_lane" enum:"hot,normal" doc:"The lane that takes new requests now."`
	CreatedAt      time.Time `json:"created_at"`
	UpdatedAt      time.Time `json:"updated_at"`
}

func stockBody(s inventory.Stock, in hot.Variant) stockJSON {
	lane := requests.Normal
	if in.TakesNew() {
		lane = requests.Hot
	}
	return stockJSON{
		VariantID: variantID(s.VariantID), Stock: s.Stock, Reserved: s.Reserved, Available: s.Available,
		Tracked: s.Tracked, Backorder: s.Backorder, HoldTTLSeconds: s.HoldTTLSeconds, MaxPerCart: s.MaxPerCart,
		Admission: s.Admission, Lane: s.Lane, CurrentLane: lane, CreatedAt: s.CreatedAt.UTC(), UpdatedAt: s.UpdatedAt.UTC(),
	}
}

// stockBodies are the stocks with the lanes they are in, read after them.
func stockBodies(ctx context.Context, db requests.Querier, tenantID uuid.UUID, stocks ...inventory.Stock) ([]stockJSON, error) {
	ids := make([]string, len(stocks))
	for i := range stocks {
		ids[i] = stocks[i].VariantID
	}
	among, err := hot.Among(ctx, db, tenantID, ids)
	if err != nil {
		return nil, err
	}
	bodies := make([]stockJSON, len(stocks))
	for i := range stocks {
		bodies[i] = stockBody(stocks[i], among[stocks[i].VariantID])
	}
	return bodies, nil
}
