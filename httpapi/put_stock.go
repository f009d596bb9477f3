package httpapi

import (
	"context"
	"errors"
	"net/http"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/inventory"
	"github.com/holdfast/holdfast/queues/hot"
	"github.com/holdfast/holdfast/requests"
	"github.com/holdfast/holdfast/tenants"
)

type stockParams struct {
	VariantID variantID `path:"variant_id"`
}

type putStockBody struct {
	Stock          *int64  `json:"stock,omitempty" minimum:"0" maximum:"1000000000" doc:"Units that exist. A new variant needs it, unless it is not tracked." example:"100"`
	Tracked        *bool   `json:"tracked,omitempty" doc:"False makes the variant digital. New variants are tracked." example:"true"`
	Backorder      *bool   `json:"backorder,omitempty" doc:"Allow holds beyond the stock. New variants do not." example:"false"`
	HoldTTLSeconds *int32  `json:"hold_ttl_seconds,omitempty" nullable:"true" minimum:"0" maximum:"2592000" doc:"How long a hold lasts; null or 0 for the service's default." example:"900"`
	MaxPerCart     *int32  `json:"max_per_cart,omitempty" nullable:"true" minimum:"0" maximum:"1000000" doc:"How many units one cart may hold; null or 0 for no limit." example:"5"`
	Admission      *string `json:"admission,omitempty" enum:"open,token" doc:"token: who adds units to a cart needs an admission token, which takes METERED_COMMANDS_ENABLED. New variants are open."`
	Lane           *string `json:"lane,omitempty" enum:"auto,hot,normal" doc:"hot pins the variant to the hot lane, normal to the normal one; auto takes the pin away and leaves the choice to the service."`
}

func (b *putStockBody) fields() []field {
	return []field{
		{"stock", false, optional(&b.Stock, whole[int64](0, inventory.MaxStock))},
		{"tracked", false, optional(&b.Tracked, boolean)},
		{"backorder", false, optional(&b.Backorder, boolean)},
		{"hold_ttl_seconds", false, clearable(&b.HoldTTLSeconds, whole[int32](0, ttlMax))},
		{"max_per_cart", false, clearable(&b.MaxPerCart, whole[int32](0, inventory.MaxQuantity))},
		{"admission", false, optional(&b.Admission, oneOf(inventory.AdmissionOpen, inventory.AdmissionToken))},
		{"lane", false, optional(&b.Lane, oneOf(inventory.LaneAuto, inventory.LaneHot, inventory.LaneNormal))},
	}
}

// ttlMax is inventory.MaxTTL in seconds.
const ttlMax = int32(inventory.MaxTTL / 1e9)

func (s *service) putStock() endpoint[stockParams, putStockBody] {
	return endpoint[stockParams, putStockBody]{
		id: "put-stock", method: http.MethodPut, path: "/v1/stocks/{variant_id}", tag: tagStocks, scope: tenants.ScopeStock,
		summary:  "Set a stock",
		doc:      "Makes the variant, or changes the fields that are given; the others stay as they are.",
		answers:  map[int]any{http.StatusOK: stockJSON{}},
		problems: []kind{belowReserved},
		handle: func(ctx context.Context, c *call, p *stockParams, b *putStockBody) (answer, error) {
			if s.metering == nil && b.Admission != nil && *b.Admission == inventory.AdmissionToken {
				return answer{}, faults{}.with("admission", "must be open: tokens are off, set METERED_COMMANDS_ENABLED to turn them on")
			}
			a, err := s.setStock(ctx, c, string(p.VariantID), b, false)
			if errors.Is(err, errLaneChanged) {
				a, err = s.setStock(ctx, c, string(p.VariantID), b, true)
			}
			return a, err
		},
	}
}

// errLaneChanged says that somebody moved the variant between the look at its lane and the lock of its stock.
var errLaneChanged = errors.New("the variant's lane was changed meanwhile")

// setStock sets the stock and moves the variant to the lane that is wished for. The move comes first, because it locks a
// slot, and slots are locked before stocks; a variant that is where it should be is left alone, unless forced.
func (s *service) setStock(ctx context.Context, c *call, id string, b *putStockBody, forced bool) (answer, error) {
	patch := inventory.StockPatch{
		Stock: b.Stock, Tracked: b.Tracked, Backorder: b.Backorder,
		HoldTTLSeconds: b.HoldTTLSeconds, MaxPerCart: b.MaxPerCart, Lane: b.Lane, Admission: b.Admission,
	}
	return s.finish(ctx, c, func(ctx context.Context, tx pgx.Tx) (any, error) {
		if b.Lane != nil {
			wish := inventory.LaneWish{VariantID: id, Lane: *b.Lane}
			if err := s.moveTx(ctx, tx, c.who.TenantID, forced, wish); err != nil {
				return nil, err
			}
		}
		stock, err := inventory.SetTx(ctx, tx, c.who.TenantID, id, patch, c.origin(""))
		if err != nil {
			return nil, err
		}
		among, err := hot.Among(ctx, tx, c.who.TenantID, []string{id})
		if err != nil {
			return nil, err
		}
		if b.Lane != nil && !forced && misplaced(among[id], *b.Lane) {
			return nil, errLaneChanged
		}
		return stockBody(stock, among[id]), nil
	})
}

// moveTx moves variants to the lanes that are wished for. One that is there already is left alone, unless forced: then
// its slot is locked all the same, so that nobody moves it until tx ends.
func (s *service) moveTx(ctx context.Context, tx pgx.Tx, tenantID uuid.UUID, forced bool, wishes ...inventory.LaneWish) error {
	among, err := hot.Among(ctx, tx, tenantID, variantsOf(wishes))
	if err != nil {
		return err
	}
	if !forced {
		wishes = slices.DeleteFunc(slices.Clone(wishes), func(wish inventory.LaneWish) bool {
			return !misplaced(among[wish.VariantID], wish.Lane)
		})
	}
	if len(wishes) > 1 {
		if err := hot.LockSlotsTx(ctx, tx, tenantID, variantsOf(wishes)); err != nil {
			return err
		}
	}
	for _, wish := range wishes {
		if err := moves[wish.Lane](ctx, tx, s.ringer, tenantID, wish.VariantID); err != nil {
			return err
		}
	}
	return nil
}

// moves are what each wish for a lane asks of the hot lane.
var moves = map[string]func(context.Context, pgx.Tx, requests.Ringer, uuid.UUID, string) error{
	inventory.LaneAuto: hot.UnpinTx, inventory.LaneHot: hot.PinTx, inventory.LaneNormal: hot.ExpelTx,
}

func variantsOf(wishes []inventory.LaneWish) []string {
	ids := make([]string, len(wishes))
	for i := range wishes {
		ids[i] = wishes[i].VariantID
	}
	return ids
}

// misplaced reports whether a variant is not where the wish for a lane puts it.
func misplaced(in hot.Variant, lane string) bool {
	switch lane {
	case inventory.LaneHot:
		return !in.TakesNew() || !in.Pinned
	case inventory.LaneAuto:
		return in.TakesNew() && in.Pinned
	default:
		return in.TakesNew()
	}
}
