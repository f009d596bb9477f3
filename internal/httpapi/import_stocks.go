package httpapi

import (
	"context"
	"io"
	"mime"
	"net/http"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/internal/tenants"
)

// Limits of an import. Limits has the least rate of the upload.
const (
	importMax     = 64 << 20 // bytes
	importTimeout = 15 * time.Minute
)

const (
	typeCSV    = "text/csv"
	typeNDJSON = "application/x-ndjson"
)

// importError means that an import, of stocks or of units, ended early.
type importError struct {
	report *inventory.ImportReport
	units  *inventory.UnitImportReport
	cause  error
}

func (e *importError) Error() string { return e.cause.Error() }

func (e *importError) Unwrap() error { return e.cause }

func (s *service) importStocks() endpoint[struct{}, emptyBody] {
	lines := &huma.MediaType{Schema: &huma.Schema{Type: huma.TypeString}}
	return endpoint[struct{}, emptyBody]{
		id: "import-stocks", method: http.MethodPost, path: "/v1/stocks/import", tag: tagStocks, scope: tenants.ScopeStock,
		summary: "Set many stocks",
		doc: "One stock per line, as Set a stock does, up to " + strconv.Itoa(importMax>>20) + " MiB. CSV has a header with variant_id, stock and any of tracked, " +
			"backorder, hold_ttl_seconds, max_per_cart and lane; NDJSON has one object per line with the same fields. Lines take effect " +
			"in their order, in transactions of 500. An invalid line is reported, and the others take effect. Lines set absolute values, " +
			"so the same import can be sent again. The problem of an import that ends early has the report of what it did.",
		upload:    map[string]*huma.MediaType{typeCSV: lines, typeNDJSON: lines},
		responses: map[int]any{http.StatusOK: inventory.ImportReport{}},
		timeout:   importTimeout,
		handle: func(ctx context.Context, req *request, _ *struct{}, _ *emptyBody) (response, error) {
			if err := req.checkMediaType(typeCSV, typeNDJSON); err != nil {
				return response{}, err
			}
			body, err := req.uploadedBody()
			if err != nil {
				return response{}, err
			}
			report, err := s.tenant(req).ImportStocks(ctx, req.format(), body, req.opts())
			if err != nil && report.RejectedLines != nil { // it has begun
				err = &importError{report: &report, cause: err}
			}
			return req.respond(report, err)
		},
	}
}

// format returns the format of the body by its media type, CSV without one.
func (req *request) format() inventory.Format {
	if mediaType, _, err := mime.ParseMediaType(req.http.Header.Get("Content-Type")); err == nil && mediaType == typeNDJSON {
		return inventory.NDJSON
	}
	return inventory.CSV
}

// uploadedBody returns the body of an import, which may take importTimeout to
// arrive.
func (req *request) uploadedBody() (io.Reader, error) {
	limited, err := req.limitedBody(importMax)
	if err != nil {
		return nil, err
	}
	if body, ok := req.http.Body.(*incoming); ok {
		body.upload(importTimeout)
	}
	return bodyReader{limited}, nil
}
