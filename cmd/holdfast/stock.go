package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/holdfast/holdfast/client"
	"github.com/holdfast/holdfast/cmd/internal/boot"
)

type stockCommand struct {
	Set    stockSet    `cmd:"" help:"Set a variant's stock or settings; settings left out keep their value."`
	Adjust stockAdjust `cmd:"" help:"Add units to a variant's stock, or take them away."`
	Get    stockGet    `cmd:"" help:"Show a variant."`
	List   stockList   `cmd:"" help:"List the variants."`
	Import stockImport `cmd:"" help:"Import stocks from CSV or NDJSON."`
}

func stockPath(variantID string) string { return client.Path("stocks", variantID) }

type stockSet struct {
	Variant        string  `arg:"" help:"The variant's id."`
	Stock          *int64  `help:"Units in stock; required for a new variant." placeholder:"N"`
	Tracked        *bool   `help:"Whether units are counted; use --no-tracked for digital goods." negatable:""`
	Backorder      *bool   `help:"Whether holds may exceed the stock." negatable:""`
	HoldTTLSeconds *int32  `name:"hold-ttl-seconds" help:"How long a hold lasts; 0 for HOLD_TTL." placeholder:"N"`
	MaxPerCart     *int32  `help:"Units that one cart may hold; 0 for no limit." placeholder:"N"`
	Lane           *string `help:"${either_wish}." enum:"${wishes}" placeholder:"LANE"`
	Admission      *string `help:"token: adding units to a cart requires an admission token (METERED_COMMANDS_ENABLED); open: it does not." enum:"open,token" placeholder:"A"`
}

// Run sets the given fields.
func (c *stockSet) Run(ctx context.Context, process boot.Process) error {
	patch := client.StockPatch{
		Stock: c.Stock, Tracked: c.Tracked, Backorder: c.Backorder, HoldTTLSeconds: c.HoldTTLSeconds,
		MaxPerCart: c.MaxPerCart, Admission: c.Admission, Lane: c.Lane,
	}
	return call(ctx, process, http.MethodPut, stockPath(c.Variant), patch)
}

type stockAdjust struct {
	Variant string `arg:"" help:"The variant's id."`
	Delta   int64  `required:"" help:"Units to add; negative to take away." placeholder:"N"`
	Reason  string `help:"Reason for the audit log."`
}

// Run adjusts the stock.
func (c *stockAdjust) Run(ctx context.Context, process boot.Process) error {
	body := map[string]any{"delta": c.Delta}
	if c.Reason != "" {
		body["reason"] = c.Reason
	}
	return call(ctx, process, http.MethodPost, stockPath(c.Variant)+"/adjust", body)
}

type stockGet struct {
	Variant string `arg:"" help:"The variant's id."`
}

// Run shows the variant.
func (c *stockGet) Run(ctx context.Context, process boot.Process) error {
	return get(ctx, process, stockPath(c.Variant))
}

type stockList struct {
	JSON bool `help:"Print one object per line."`
}

// stockPage is how many variants one call lists.
const stockPage = 200

// Run lists all variants, page by page.
func (c *stockList) Run(ctx context.Context, process boot.Process) error {
	const columns = "%-40s %12v %12v %12v  %s\n"
	return eachPage(ctx, process, "/v1/stocks", stockPage, func(page *listPage, first bool) error {
		if first && !c.JSON {
			fmt.Fprintf(process.Stdout, columns, "VARIANT", "STOCK", "RESERVED", "AVAILABLE", "SETTINGS")
		}
		return printItems(process.Stdout, page.Items, c.JSON, func(w io.Writer, s *client.Stock) {
			fmt.Fprintf(w, columns, s.VariantID, s.Stock, s.Reserved, s.Available, settings(s))
		})
	})
}

// printItems writes a line for each item: the object as it is, or the row.
func printItems[T any](w io.Writer, items []json.RawMessage, asJSON bool, row func(io.Writer, *T)) error {
	for _, item := range items {
		if asJSON {
			fmt.Fprintf(w, "%s\n", item)
			continue
		}
		var v T
		if err := json.Unmarshal(item, &v); err != nil {
			return fmt.Errorf("read an item of the list: %w", err)
		}
		row(w, &v)
	}
	return nil
}

// listPage is a page of stocks or of units; only the latter has counts.
type listPage struct {
	Active, Pending, Inactive int64
	Items                     []json.RawMessage `json:"items"`
	NextCursor                *string           `json:"next_cursor"`
}

// eachPage reads a list page by page, limit items at a time.
func eachPage(ctx context.Context, process boot.Process, path string, limit int, show func(page *listPage, first bool) error) error {
	api, err := newClient(ctx, process)
	if err != nil {
		return err
	}
	query := url.Values{"limit": {strconv.Itoa(limit)}}
	for first := true; ; first = false {
		var page listPage
		if err := api.do(ctx, http.MethodGet, path+"?"+query.Encode(), nil, &page); err != nil {
			return err
		}
		if err := show(&page, first); err != nil {
			return err
		}
		if page.NextCursor == nil || *page.NextCursor == "" {
			return nil
		}
		query.Set("cursor", *page.NextCursor)
	}
}

// settings lists the settings that differ from the default.
func settings(s *client.Stock) string {
	var words []string
	if !s.Tracked {
		words = append(words, "digital")
	}
	if s.Backorder {
		words = append(words, "backorder")
	}
	if s.Lane != "auto" {
		words = append(words, "lane="+s.Lane)
	}
	if s.Admission == "token" {
		words = append(words, "admission=token")
	}
	return strings.Join(words, " ")
}

type stockImport struct{ importFile }

// importFile is a file that is sent to an import.
type importFile struct {
	File   string `arg:"" help:"A .csv or .ndjson file, or - for standard input."`
	Format string `help:"csv or ndjson, if the file's name does not end in it." enum:"csv,ndjson," default:""`
}

// importTypes are the media types of files that can be imported, by the
// extension of the name.
var importTypes = map[string]client.Format{"csv": client.CSV, "ndjson": client.NDJSON, "jsonl": client.NDJSON}

// Run sends the file and prints the counts and the lines that were rejected.
func (c *stockImport) Run(ctx context.Context, process boot.Process) error {
	return c.send(ctx, process, http.MethodPost, "/v1/stocks/import")
}

// send sends the file and prints the response.
func (c *importFile) send(ctx context.Context, process boot.Process, method, path string) error {
	contentType, ok := importTypes[cmp.Or(c.Format, strings.TrimPrefix(filepath.Ext(c.File), "."))]
	if !ok {
		return &boot.UsageError{Message: "the file's name ends neither in .csv nor in .ndjson: set --format"}
	}
	input, closeFile, err := open(process, c.File)
	if err != nil {
		return err
	}
	defer closeFile()
	api, err := newClient(ctx, process)
	if err != nil {
		return err
	}
	var answer json.RawMessage
	if err := api.send(ctx, client.Call{Method: method, Path: path, ContentType: string(contentType), Stream: input}, &answer); err != nil {
		return err
	}
	return printJSON(process.Stdout, answer)
}
