package client

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"time"
)

// SetStock creates or changes a variant. A nil field of the patch stays unchanged.
func (c *Client) SetStock(ctx context.Context, variant string, patch StockPatch, opts *CallOpts) (Stock, error) {
	return do[Stock](ctx, c, opts, http.MethodPut, Path("stocks", variant), patch)
}

// AdjustStock adds units to a variant's stock, or takes them away, for
// CallOpts.Reason.
func (c *Client) AdjustStock(ctx context.Context, variant string, delta int64, opts *CallOpts) (Stock, error) {
	return do[Stock](ctx, c, opts, http.MethodPost, Path("stocks", variant, "adjust"), AdjustStockBody{Delta: delta, Reason: opts.reason()})
}

// TransferStock moves units from one variant's stock to another's, both or
// neither, for CallOpts.Reason. Error code: out_of_stock if from has fewer free
// units.
func (c *Client) TransferStock(ctx context.Context, from, to string, quantity int64, opts *CallOpts) (StockTransfer, error) {
	body := TransferStockBody{From: from, To: to, Quantity: quantity, Reason: opts.reason()}
	return do[StockTransfer](ctx, c, opts, http.MethodPost, Path("stocks", "transfer"), body)
}

// DeleteStock deletes a variant that nothing holds. Its record stays.
func (c *Client) DeleteStock(ctx context.Context, variant string, opts *CallOpts) error {
	_, err := do[Deleted](ctx, c, opts, http.MethodDelete, Path("stocks", variant), nil)
	return err
}

// Pin pins a variant to the hot lane, or removes its pin.
func (c *Client) Pin(ctx context.Context, variant string, pinned bool, opts *CallOpts) (Pin, error) {
	method := http.MethodPut
	if !pinned {
		method = http.MethodDelete
	}
	return do[Pin](ctx, c, opts, method, Path("lanes", "hot", "variants", variant), nil)
}

// Stock reads a variant. Error code: not_found.
func (c *Client) Stock(ctx context.Context, variant string) (Stock, error) {
	return do[Stock](ctx, c, nil, http.MethodGet, Path("stocks", variant), nil)
}

// StocksOf reads up to 200 variants in one call, in their order, without those
// that do not exist.
func (c *Client) StocksOf(ctx context.Context, variants []string) ([]Stock, error) {
	result, err := do[StockPage](ctx, c, nil, http.MethodGet, Path("stocks")+"?"+url.Values{"variant_id": variants}.Encode(), nil)
	return result.Items, err
}

// Stocks reads a page of at most limit variants (1 to 500; 0 for 100) in the order
// of their ids, from the cursor of an earlier page on.
func (c *Client) Stocks(ctx context.Context, limit int, cursor string) (StockPage, error) {
	return do[StockPage](ctx, c, nil, http.MethodGet, Path("stocks")+page(limit, cursor, ""), nil)
}

// GroupStocks reads a page of the variants of a group, as Stocks does.
func (c *Client) GroupStocks(ctx context.Context, group string, limit int, cursor string) (StockPage, error) {
	return do[StockPage](ctx, c, nil, http.MethodGet, Path("stocks")+page(limit, cursor, group), nil)
}

// Group reads the sums and the limit of the variants of a group.
func (c *Client) Group(ctx context.Context, group string) (Group, error) {
	return do[Group](ctx, c, nil, http.MethodGet, Path("groups", group), nil)
}

// SetGroup sets the limit of a group. A nil field of the patch stays unchanged.
func (c *Client) SetGroup(ctx context.Context, group string, patch GroupPatch, opts *CallOpts) (Group, error) {
	return do[Group](ctx, c, opts, http.MethodPut, Path("groups", group), patch)
}

// SetKit creates a kit, or changes what later adds of it contain.
func (c *Client) SetKit(ctx context.Context, kit string, parts []KitPart, opts *CallOpts) (Kit, error) {
	return do[Kit](ctx, c, opts, http.MethodPut, Path("kits", kit), PutKitBody{parts})
}

// DeleteKit deletes a kit. What carts hold of it stays.
func (c *Client) DeleteKit(ctx context.Context, kit string, opts *CallOpts) error {
	_, err := do[DeletedKit](ctx, c, opts, http.MethodDelete, Path("kits", kit), nil)
	return err
}

// Kit reads a kit.
func (c *Client) Kit(ctx context.Context, kit string) (Kit, error) {
	return do[Kit](ctx, c, nil, http.MethodGet, Path("kits", kit), nil)
}

// Kits reads a page of kits, as Stocks does.
func (c *Client) Kits(ctx context.Context, limit int, cursor string) (KitPage, error) {
	return do[KitPage](ctx, c, nil, http.MethodGet, Path("kits")+page(limit, cursor, ""), nil)
}

// SetAllotment takes units of a variant out of sale, until expiresAt or, with nil,
// for good; they can be requested with CallOpts.Allotment.
func (c *Client) SetAllotment(ctx context.Context, variant, allotment string, quantity int64, expiresAt *time.Time, opts *CallOpts) (Allotment, error) {
	body := PutAllotmentBody{Quantity: quantity, ExpiresAt: expiresAt}
	return do[Allotment](ctx, c, opts, http.MethodPut, Path("stocks", variant, "allotments", allotment), body)
}

// EndAllotment puts what is left of an allotment on sale.
func (c *Client) EndAllotment(ctx context.Context, variant, allotment string, opts *CallOpts) error {
	_, err := do[EndedAllotment](ctx, c, opts, http.MethodDelete, Path("stocks", variant, "allotments", allotment), nil)
	return err
}

// Allotment reads an allotment of a variant.
func (c *Client) Allotment(ctx context.Context, variant, allotment string) (Allotment, error) {
	return do[Allotment](ctx, c, nil, http.MethodGet, Path("stocks", variant, "allotments", allotment), nil)
}

// Allotments reads a page of the allotments of a variant, as Stocks does.
func (c *Client) Allotments(ctx context.Context, variant string, limit int, cursor string) (AllotmentPage, error) {
	return do[AllotmentPage](ctx, c, nil, http.MethodGet, Path("stocks", variant, "allotments")+page(limit, cursor, ""), nil)
}

// Block reads a page of the units of a block, as Stocks does, with the counts of
// the whole block.
func (c *Client) Block(ctx context.Context, block string, limit int, cursor string) (UnitPage, error) {
	return do[UnitPage](ctx, c, nil, http.MethodGet, Path("units", block)+page(limit, cursor, ""), nil)
}

// Format is the media type of a file that is imported.
type Format string

// The formats of imports.
const (
	CSV    Format = "text/csv"             // with a header row
	NDJSON Format = "application/x-ndjson" // an object a line
)

// ImportStocks creates or changes the variants of a file. It is sent once: r
// can't be read again.
func (c *Client) ImportStocks(ctx context.Context, format Format, r io.Reader, opts *CallOpts) (ImportReport, error) {
	return importFile[ImportReport](ctx, c, http.MethodPost, Path("stocks", "import"), format, r, opts)
}

// ImportUnits creates the units of a block, as ImportStocks does variants.
func (c *Client) ImportUnits(ctx context.Context, block string, format Format, r io.Reader, opts *CallOpts) (UnitImportReport, error) {
	return importFile[UnitImportReport](ctx, c, http.MethodPut, Path("units", block, "import"), format, r, opts)
}

func importFile[T any](ctx context.Context, c *Client, method, path string, format Format, r io.Reader, opts *CallOpts) (report T, err error) {
	call := Call{Method: method, Path: path, ContentType: string(format), Stream: r}
	if opts != nil {
		call.CallOpts = *opts
	}
	err = c.Do(ctx, call, &report)
	return report, err
}
