package httpapi

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/admission"
	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/internal/lanes"
	"github.com/holdfast/holdfast/internal/requestrows"
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
			return s.importOnce(ctx, req)
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

// importOnce imports the body, unless a response is stored under its
// idempotency key. The fingerprint includes the body, so the key is claimed
// after the whole body was read. Two concurrent imports with one key both take
// effect, which changes nothing, and get the same response.
func (s *service) importOnce(ctx context.Context, req *request) (response, error) {
	reader, err := req.uploadedBody()
	if err != nil {
		return response{}, err
	}
	hash := sha256.New()
	if req.key == "" {
		report, err := s.importFrom(ctx, req, reader)
		return jsonResponse(http.StatusOK, report), err
	}
	used, err := s.hasStored(ctx, req)
	if err != nil {
		return response{}, err
	}
	reader = io.TeeReader(reader, hash)
	var report inventory.ImportReport
	if used { // only the hash of the body is needed
		if _, err := io.Copy(io.Discard, reader); err != nil {
			return response{}, err
		}
	} else if report, err = s.importFrom(ctx, req, reader); err != nil {
		return response{}, err
	}
	req.body = append([]byte(req.format()), hash.Sum(nil)...)
	return s.runTx(ctx, req, func(context.Context, pgx.Tx) (any, error) {
		if used {
			return nil, fmt.Errorf("%w: the response under the idempotency key was purged meanwhile", admission.ErrOverloaded)
		}
		return report, nil
	})
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

func (s *service) importFrom(ctx context.Context, req *request, r io.Reader) (inventory.ImportReport, error) {
	report, err := inventory.Import(ctx, s.pool, req.principal.TenantID, req.format(), r, req.origin(""), inventory.ImportOptions{
		OnLane: func(ctx context.Context, tx pgx.Tx, tenantID uuid.UUID, wishes []lanes.Placement) error {
			return lanes.PlaceTx(ctx, tx, s.inserter, tenantID, wishes)
		},
	})
	if err != nil {
		return report, &importError{report: &report, cause: err}
	}
	return report, nil
}

// hasStored reports whether a response is stored under the key of the request.
// It claims the key with a fingerprint that no request has, and rolls back.
func (s *service) hasStored(ctx context.Context, req *request) (used bool, err error) {
	rollback := errors.New("roll back")
	err = pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		_, err := tenants.ClaimKeyTx(ctx, tx, req.principal.TenantID, req.key, [sha256.Size]byte{})
		if errors.Is(err, tenants.ErrKeyReused) {
			used = true
			return rollback
		}
		if err != nil {
			return err
		}
		if err := requestrows.ReserveKeyTx(ctx, tx, req.principal.TenantID, req.key); err != nil {
			return err
		}
		return rollback
	})
	if errors.Is(err, rollback) {
		err = nil
	}
	return used, err
}
