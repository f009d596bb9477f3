package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// Stock is a variant's counters and settings. The counters are in units.
type Stock struct {
	VariantID string `json:"variant_id"`
	Stock     int64  `json:"stock"`
	Reserved  int64  `json:"reserved"`
	// Available is what a new buyer can have. Units held past their deadline
	// count as available, although reserved.
	Available      int64     `json:"available"`
	Tracked        bool      `json:"tracked"` // false for a digital variant
	Backorder      bool      `json:"backorder"`
	HoldTTLSeconds *int32    `json:"hold_ttl_seconds"` // nil for the service's default
	MaxPerCart     *int32    `json:"max_per_cart"`     // nil for no limit
	Admission      string    `json:"admission"`        // open or token
	Lane           string    `json:"lane"`             // hot, normal or auto
	CurrentLane    string    `json:"current_lane"`     // hot or normal
	CreatedAt      time.Time `json:"created_at"`
	UpdatedAt      time.Time `json:"updated_at"`
}

// StockPatch is a change of a variant. A nil field stays unchanged; 0 clears
// HoldTTLSeconds and MaxPerCart.
type StockPatch struct {
	Stock          *int64  `json:"stock,omitempty"`
	Tracked        *bool   `json:"tracked,omitempty"`
	Backorder      *bool   `json:"backorder,omitempty"`
	HoldTTLSeconds *int32  `json:"hold_ttl_seconds,omitempty"`
	MaxPerCart     *int32  `json:"max_per_cart,omitempty"`
	Admission      *string `json:"admission,omitempty"`
	Lane           *string `json:"lane,omitempty"`
}

// SetStock creates or changes a variant.
func (c *Client) SetStock(ctx context.Context, variantID string, patch StockPatch, opts *CallOpts) (Stock, error) {
	return do[Stock](ctx, c, opts, http.MethodPut, Path("stocks", variantID), patch)
}

// AdjustStock adds units to a variant's stock, or takes them away. The reason
// is recorded; it may be empty.
func (c *Client) AdjustStock(ctx context.Context, variantID string, delta int64, reason string, opts *CallOpts) (Stock, error) {
	body := struct {
		Delta  int64  `json:"delta"`
		Reason string `json:"reason,omitempty"`
	}{delta, reason}
	return do[Stock](ctx, c, opts, http.MethodPost, Path("stocks", variantID, "adjust"), body)
}

// Stock reads a variant.
func (c *Client) Stock(ctx context.Context, variantID string) (Stock, error) {
	return do[Stock](ctx, c, nil, http.MethodGet, Path("stocks", variantID), nil)
}

// Stocks reads a page of at most limit variants (1 to 200) in the order of
// their ids, from the cursor on: empty for the first page. The returned cursor
// is that of the next page, empty on the last.
func (c *Client) Stocks(ctx context.Context, limit int, cursor string) (stocks []Stock, next string, err error) {
	query := url.Values{"limit": {strconv.Itoa(limit)}}
	if cursor != "" {
		query.Set("cursor", cursor)
	}
	page, err := do[struct {
		Items      []Stock `json:"items"`
		NextCursor string  `json:"next_cursor"`
	}](ctx, c, nil, http.MethodGet, Path("stocks")+"?"+query.Encode(), nil)
	return page.Items, page.NextCursor, err
}
