package httpapi

import (
	"context"
	"net/http"
	"time"

	"github.com/holdfast/holdfast"
	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/internal/tenants"
)

// allotmentJSON is an allotment in a response.
type allotmentJSON struct {
	VariantID   variantID  `json:"variant_id"`
	AllotmentID allotment  `json:"allotment_id"`
	Quantity    int64      `json:"quantity" doc:"Units that were set aside, those included that are held or were committed."`
	Available   int64      `json:"available" doc:"Units that a new request can hold from it."`
	ExpiresAt   *time.Time `json:"expires_at" doc:"When what is left returns to sale; null for never."`
	CreatedAt   time.Time  `json:"created_at"`
	UpdatedAt   time.Time  `json:"updated_at"`
}

func allotmentBody(a holdfast.Allotment) allotmentJSON {
	body := allotmentJSON{
		VariantID: variantID(a.VariantID), AllotmentID: allotment(a.AllotmentID), Quantity: a.Quantity, Available: a.Available,
		CreatedAt: a.CreatedAt.UTC(), UpdatedAt: a.UpdatedAt.UTC(),
	}
	if a.ExpiresAt != nil {
		end := a.ExpiresAt.UTC()
		body.ExpiresAt = &end
	}
	return body
}

type allotmentParams struct {
	VariantID   variantID `path:"variant_id"`
	AllotmentID allotment `path:"allotment_id"`
}

type putAllotmentBody struct {
	Quantity  int64      `json:"quantity" doc:"Units to be set aside, those included that were taken from it." example:"100"`
	ExpiresAt *time.Time `json:"expires_at,omitempty" doc:"When what is left returns to sale; null, or left out, for never." example:"2026-12-24T12:00:00Z"`
}

func (b *putAllotmentBody) fields() []field {
	return []field{
		{"quantity", true, into(&b.Quantity, whole[int64](1, inventory.MaxStock))},
		{"expires_at", false, instant(&b.ExpiresAt)},
	}
}

func (s *service) putAllotment() endpoint[allotmentParams, putAllotmentBody] {
	return endpoint[allotmentParams, putAllotmentBody]{
		id: "put-allotment", method: http.MethodPut, path: "/v1/stocks/{variant_id}/allotments/{allotment_id}", tag: tagStocks, scope: tenants.ScopeStock,
		summary: "Set units of a variant aside",
		doc: "Creates the allotment, or replaces its quantity and its end. Its units are in reserved, not in available, and only a request that " +
			"names it holds them. Refused for less than was taken from it, and for more than is free. Units that are released go back to it; " +
			"what is left returns to sale at its end, and holds stay.",
		responses: map[int]any{http.StatusOK: allotmentJSON{}},
		problems:  []kind{notFound, belowReserved, tooFewFree},
		handle: func(ctx context.Context, req *request, p *allotmentParams, b *putAllotmentBody) (response, error) {
			end := b.ExpiresAt
			if end != nil && end.IsZero() { // null
				end = nil
			}
			a, err := s.tenant(req).SetAllotment(ctx, string(p.VariantID), string(p.AllotmentID), b.Quantity, end, req.opts())
			return req.respond(allotmentBody(a), err)
		},
	}
}

func (s *service) getAllotment() endpoint[allotmentParams, emptyBody] {
	return endpoint[allotmentParams, emptyBody]{
		id: "get-allotment", method: http.MethodGet, path: "/v1/stocks/{variant_id}/allotments/{allotment_id}", tag: tagStocks, scope: tenants.ScopeStock,
		summary:   "Read an allotment",
		doc:       "One that has ended is not found.",
		responses: map[int]any{http.StatusOK: allotmentJSON{}},
		problems:  []kind{notFound},
		handle: func(ctx context.Context, req *request, p *allotmentParams, _ *emptyBody) (response, error) {
			a, err := s.tenant(req).Allotment(ctx, string(p.VariantID), string(p.AllotmentID))
			return req.respond(allotmentBody(a), err)
		},
	}
}

type allotmentPageJSON struct {
	Items      []allotmentJSON `json:"items"`
	NextCursor *string         `json:"next_cursor" doc:"The cursor of the next page; null on the last page."`
}

type listAllotmentsParams struct {
	VariantID variantID  `path:"variant_id"`
	Limit     stockLimit `query:"limit"`
	Cursor    string     `query:"cursor" doc:"next_cursor of the previous page."`
}

func (s *service) listAllotments() endpoint[listAllotmentsParams, emptyBody] {
	return endpoint[listAllotmentsParams, emptyBody]{
		id: "list-allotments", method: http.MethodGet, path: "/v1/stocks/{variant_id}/allotments", tag: tagStocks, scope: tenants.ScopeStock,
		summary:   "List the allotments of a variant",
		doc:       "In the order of their ids, without those that have ended.",
		responses: map[int]any{http.StatusOK: allotmentPageJSON{}},
		handle: func(ctx context.Context, req *request, p *listAllotmentsParams, _ *emptyBody) (response, error) {
			page, err := s.tenant(req).Allotments(ctx, string(p.VariantID), int(p.Limit), p.Cursor)
			if err != nil {
				return response{}, err
			}
			body := allotmentPageJSON{Items: make([]allotmentJSON, len(page.Items))}
			for i := range page.Items {
				body.Items[i] = allotmentBody(page.Items[i])
			}
			if page.NextCursor != "" {
				body.NextCursor = &page.NextCursor
			}
			return jsonResponse(http.StatusOK, body), nil
		},
	}
}

type endedAllotmentJSON struct {
	VariantID   variantID `json:"variant_id"`
	AllotmentID allotment `json:"allotment_id"`
}

func (s *service) endAllotment() endpoint[allotmentParams, emptyBody] {
	return endpoint[allotmentParams, emptyBody]{
		id: "delete-allotment", method: http.MethodDelete, path: "/v1/stocks/{variant_id}/allotments/{allotment_id}", tag: tagStocks, scope: tenants.ScopeStock,
		summary:   "End an allotment",
		doc:       "What is left returns to sale. What carts hold from it stays held; once it is released, it is for sale.",
		responses: map[int]any{http.StatusOK: endedAllotmentJSON{}},
		problems:  []kind{notFound},
		handle: func(ctx context.Context, req *request, p *allotmentParams, _ *emptyBody) (response, error) {
			err := s.tenant(req).EndAllotment(ctx, string(p.VariantID), string(p.AllotmentID), req.opts())
			return req.respond(endedAllotmentJSON(*p), err)
		},
	}
}
