package httpapi

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/inventory"
	"github.com/holdfast/holdfast/requests"
	"github.com/holdfast/holdfast/tenants"
)

// Limits of an import. The caller may take its time, but not stand still: see Limits.
const (
	importMax     = 64 << 20 // bytes
	importTimeout = 15 * time.Minute
)

const (
	typeCSV    = "text/csv"
	typeNDJSON = "application/x-ndjson"
)

// importError is an import that ended early.
type importError struct {
	report inventory.ImportReport
	cause  error
}

func (e *importError) Error() string { return e.cause.Error() }

func (e *importError) Unwrap() error { return e.cause }

func (s *service) importStocks() endpoint[struct{}, none] {
	lines := &huma.MediaType{Schema: &huma.Schema{Type: huma.TypeString}}
	return endpoint[struct{}, none]{
		id: "import-stocks", method: http.MethodPost, path: "/v1/stocks/import", tag: tagStocks, scope: tenants.ScopeStock,
		summary: "Set many stocks",
		doc: "One stock a line, as Set a stock does, up to 64 MiB. CSV has a header with variant_id, stock and any of tracked, " +
			"backorder, hold_ttl_seconds, max_per_cart and lane; NDJSON has an object a line with the same fields. Lines take effect " +
			"in their order, in transactions of 500; a line at fault is reported and the others take effect. Lines say what is to be, " +
			"so sending everything again is safe. An import that ends early says in its problem what it had done.",
		upload:  map[string]*huma.MediaType{typeCSV: lines, typeNDJSON: lines},
		answers: map[int]any{http.StatusOK: inventory.ImportReport{}},
		timeout: importTimeout,
		handle: func(ctx context.Context, c *call, _ *struct{}, _ *none) (answer, error) {
			if err := c.takes(typeCSV, typeNDJSON); err != nil {
				return answer{}, err
			}
			return s.importOnce(ctx, c)
		},
	}
}

// format is the form of the body by its media type; without one it is CSV.
func (c *call) format() inventory.Format {
	if mediaType, _, err := mime.ParseMediaType(c.r.Header.Get("Content-Type")); err == nil && mediaType == typeNDJSON {
		return inventory.NDJSON
	}
	return inventory.CSV
}

// importOnce imports the body, unless its idempotency key has an answer. The body is part of the fingerprint and known
// only at its end, so the key is claimed then; two that import at once under one key both do, which changes nothing,
// and get one answer.
func (s *service) importOnce(ctx context.Context, c *call) (answer, error) {
	limited, err := c.limited(importMax)
	if err != nil {
		return answer{}, err
	}
	if body, ok := c.r.Body.(*incoming); ok {
		body.upload(importTimeout)
	}
	hash := sha256.New()
	reader := io.Reader(bodyReader{limited})
	if c.key == "" {
		report, err := s.importFrom(ctx, c, reader)
		return respond(http.StatusOK, report), err
	}
	used, err := s.isUsed(ctx, c)
	if err != nil {
		return answer{}, err
	}
	reader = io.TeeReader(reader, hash)
	var report inventory.ImportReport
	if used { // only the body's hash is wanted
		if _, err := io.Copy(io.Discard, reader); err != nil {
			return answer{}, err
		}
	} else if report, err = s.importFrom(ctx, c, reader); err != nil {
		return answer{}, err
	}
	c.body = append([]byte(c.format()), hash.Sum(nil)...)
	return s.finish(ctx, c, func(context.Context, pgx.Tx) (any, error) {
		if used {
			return nil, fmt.Errorf("%w: the answer under the idempotency key was purged just now", requests.ErrOverloaded)
		}
		return report, nil
	})
}

func (s *service) importFrom(ctx context.Context, c *call, r io.Reader) (inventory.ImportReport, error) {
	report, err := inventory.Import(ctx, s.pool, c.who.TenantID, c.format(), r, c.origin(""), inventory.ImportOptions{
		OnLane: func(ctx context.Context, tx pgx.Tx, tenantID uuid.UUID, wishes []inventory.LaneWish) error {
			return s.moveTx(ctx, tx, tenantID, false, wishes...)
		},
	})
	if err != nil {
		return report, &importError{report, err}
	}
	return report, nil
}

// isUsed reports whether the call's key has an answer. It claims the key for a call that there can't be, and gives it
// back.
func (s *service) isUsed(ctx context.Context, c *call) (used bool, err error) {
	back := errors.New("give the key back")
	err = pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		_, err := tenants.ClaimKeyTx(ctx, tx, c.who.TenantID, c.key, [sha256.Size]byte{})
		if errors.Is(err, tenants.ErrKeyReused) {
			used = true
			return back
		}
		if err != nil {
			return err
		}
		if err := requests.FenceKeyTx(ctx, tx, c.who.TenantID, c.key); err != nil {
			return err
		}
		return back
	})
	if errors.Is(err, back) {
		err = nil
	}
	return used, err
}
