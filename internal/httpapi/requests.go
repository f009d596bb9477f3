package httpapi

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/google/uuid"

	"github.com/holdfast/holdfast/internal/requestrows"
	"github.com/holdfast/holdfast/internal/tenants"
	"github.com/holdfast/holdfast/requests"
)

// requestJSON is a request in a response.
type requestJSON struct {
	RequestID uuid.UUID        `json:"request_id" format:"uuid"`
	Kind      requests.Kind    `json:"kind" enum:"add,set,wait,lines" doc:"add asks for more units, wait too but waits in line for them, set asks for a quantity in place of the present one, lines for several lines."`
	Status    requests.Status  `json:"status" enum:"queued,processing,waiting,done,failed" doc:"done and failed are final; waiting: in line for units, until they are offered."`
	Reason    *requests.Reason `json:"reason" enum:"out_of_stock,unknown_variant,not_on_sale,quantity_not_allowed,limit_exceeded,part_of_kit,unknown_kit,unknown_allotment,cancelled,expired_in_queue,internal_error" doc:"Why it failed, else null."`
	CartID    cartID           `json:"cart_id"`
	VariantID variantID        `json:"variant_id,omitempty" doc:"Left out of a request of several lines."`
	Quantity  int32            `json:"quantity" doc:"Units asked for, of all lines together."`
	Allotment allotment        `json:"allotment,omitempty" doc:"The allotment whose units were asked for."`
	UnitsAsked
	Lines       []LineOutcome    `json:"lines,omitempty" doc:"What is held for each line; left out of other requests."`
	Lane        laneName         `json:"lane" doc:"Where it was queued."`
	Position    *int64           `json:"position" doc:"How many earlier requests for the same hot variant are not decided; 1000 means that many or more; null in the normal lane and once the request is finished. Of a waiting request, its place in line from 1; 10000 means that place or a later one."`
	Reservation *reservationJSON `json:"reservation" doc:"The present state of the hold that was made; null if there is none: not decided, failed, or a digital variant."`
	RetryOf     *uuid.UUID       `json:"retry_of,omitempty" format:"uuid" doc:"The failed request that it retries; left out of other requests."`
	RetriedBy   *uuid.UUID       `json:"retried_by,omitempty" format:"uuid" doc:"The request that retries it; left out if there is none, and for keys without the scope ops."`
	CreatedAt   time.Time        `json:"created_at"`
	UpdatedAt   time.Time        `json:"updated_at"`
}

// TransformSchema allows null for the reservation. Huma has no tag for that.
func (requestJSON) TransformSchema(_ huma.Registry, s *huma.Schema) *huma.Schema {
	held := s.Properties["reservation"]
	s.Properties["reservation"] = &huma.Schema{
		Description: held.Description,
		AnyOf:       []*huma.Schema{{Ref: held.Ref}, {Type: "null"}},
	}
	return s
}

func requestBody(v requests.View) requestJSON {
	r := &v.Request
	body := requestJSON{
		RequestID: r.RequestID, Kind: r.Kind, Status: r.Status, Reason: reasonOf(r), CartID: cartID(r.CartID), VariantID: variantOf(r),
		Lines: lineBodies(v.Outcomes), Quantity: r.Quantity, Lane: laneName(r.Lane), Position: v.Position, Allotment: allotmentOf(r.Units), UnitsAsked: unitsOfRequest(r), RetryOf: r.RetryOf,
		CreatedAt: r.CreatedAt.UTC(), UpdatedAt: r.UpdatedAt.UTC(),
	}
	if v.Reservation != nil {
		held := reservationBody(*v.Reservation)
		body.Reservation = &held
		if len(held.UnitIDs) > 0 {
			body.Block, body.UnitIDs = held.Block, held.UnitIDs
		}
	}
	return body
}

// variantOf is the request's variant, "" if it has several lines.
func variantOf(r *requests.Request) variantID {
	if r.Lines != nil {
		return ""
	}
	return variantID(r.VariantID)
}

// allotmentOf is the allotment that is asked for, "" for none.
func allotmentOf(units *requests.Units) allotment {
	if units == nil {
		return ""
	}
	return allotment(units.Allotment)
}

func reasonOf(r *requests.Request) *requests.Reason {
	if r.Reason == "" {
		return nil
	}
	return &r.Reason
}

// cartRequestJSON is a request in the response of its cart.
type cartRequestJSON struct {
	RequestID uuid.UUID        `json:"request_id" format:"uuid"`
	Kind      requests.Kind    `json:"kind" enum:"add,set,wait,lines" doc:"add asks for more units, wait too but waits in line for them, set asks for a quantity in place of the present one, lines for several lines."`
	Status    requests.Status  `json:"status" enum:"queued,processing,waiting,failed"`
	Reason    *requests.Reason `json:"reason" enum:"out_of_stock,unknown_variant,not_on_sale,quantity_not_allowed,limit_exceeded,part_of_kit,unknown_kit,unknown_allotment,cancelled,expired_in_queue,internal_error"`
	VariantID variantID        `json:"variant_id,omitempty" doc:"Left out of a request of several lines."`
	Quantity  int32            `json:"quantity"`
	Allotment allotment        `json:"allotment,omitempty"`
	UnitsAsked
	Lane      laneName  `json:"lane"`
	CreatedAt time.Time `json:"created_at"`
	UpdatedAt time.Time `json:"updated_at"`
}

func cartRequestBodies(rs []requests.Request) []cartRequestJSON {
	bodies := make([]cartRequestJSON, len(rs))
	for i := range rs {
		r := &rs[i]
		bodies[i] = cartRequestJSON{
			RequestID: r.RequestID, Kind: r.Kind, Status: r.Status, Reason: reasonOf(r), VariantID: variantOf(r),
			Quantity: r.Quantity, Allotment: allotmentOf(r.Units), UnitsAsked: unitsOfRequest(r), Lane: laneName(r.Lane), CreatedAt: r.CreatedAt.UTC(), UpdatedAt: r.UpdatedAt.UTC(),
		}
	}
	return bodies
}

// waitTimeout is the timeout of an endpoint whose caller may ask to wait.
const waitTimeout = time.Minute

type getRequestParams struct {
	RequestID uuid.UUID   `path:"request_id" format:"uuid"`
	Wait      waitSeconds `query:"wait"`
}

// waitSeconds is how long a caller asks to wait; 0 if left out.
type waitSeconds int

// Schema describes the wait, for huma.
func (waitSeconds) Schema(huma.Registry) *huma.Schema {
	return numberSchema(int64(waitMax/time.Second), "Wait up to this many seconds for the request to finish.")
}

func (s *service) getRequest() endpoint[getRequestParams, emptyBody] {
	return endpoint[getRequestParams, emptyBody]{
		id: "get-request", method: http.MethodGet, path: "/v1/requests/{request_id}", tag: tagRequests, scope: tenants.ScopeCart, also: operators,
		summary: "Read a request",
		doc: "With wait the response comes when the request is finished or the time is over, whichever is first. With If-None-Match the " +
			"response is 304 if nothing changed by then.",
		responses:       map[int]any{http.StatusOK: requestJSON{}, http.StatusNotModified: nil},
		problems:        []kind{notFound},
		requestHeaders:  []*huma.Param{ifNoneMatch},
		responseHeaders: map[string]*huma.Param{"ETag": {Description: "Identifies this state of the request.", Schema: &huma.Schema{Type: huma.TypeString}}},
		timeout:         ownBounds,
		handle: func(ctx context.Context, req *request, p *getRequestParams, _ *emptyBody) (response, error) {
			v, err := s.view(ctx, req, p)
			if err != nil {
				return response{}, err
			}
			body := requestBody(v)
			if req.principal.Has(tenants.ScopeOps) {
				body, err = s.withRetry(ctx, v)
			}
			if err != nil {
				return response{}, err
			}
			return unlessMatched(req, jsonResponse(http.StatusOK, body)), nil
		},
	}
}

// withRetry returns the body of a request for an operator, with its retry.
func (s *service) withRetry(ctx context.Context, v requests.View) (requestJSON, error) {
	body := requestBody(v)
	if v.Status != requests.Failed {
		return body, nil
	}
	ctx, cancel := context.WithTimeout(ctx, s.bounds.request)
	defer cancel()
	retries, err := requestrows.Retries(ctx, s.pool, []requestrows.Ref{requestrows.RefOf(&v.Request)})
	if by, exists := retries[requestrows.RefOf(&v.Request)]; exists {
		body.RetriedBy = &by
	}
	return body, err
}

func (s *service) view(ctx context.Context, req *request, p *getRequestParams) (requests.View, error) {
	within := s.bounds.request
	if p.Wait > 0 {
		within = waitTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	if p.Wait > 0 {
		return s.tenant(req).Wait(ctx, p.RequestID, time.Duration(p.Wait)*time.Second)
	}
	return s.tenant(req).Request(ctx, p.RequestID)
}

var ifNoneMatch = &huma.Param{
	Name: "If-None-Match", In: "header", Schema: &huma.Schema{Type: huma.TypeString}, Description: "The ETag of an earlier response.",
}

// unlessMatched adds the entity tag of a response, and returns 304 instead if
// the caller has it already.
func unlessMatched(req *request, resp response) response {
	tag := entityTag(resp.body)
	if anyMatches(req.http.Header.Values("If-None-Match"), tag) {
		resp = response{status: http.StatusNotModified}
	}
	return resp.with("ETag", tag).with("Cache-Control", "private, no-cache")
}

// entityTag returns a strong entity tag: different bodies have different tags.
func entityTag(body []byte) string {
	sum := sha256.Sum256(body)
	return `"` + hex.EncodeToString(sum[:16]) + `"`
}

// anyMatches compares the tags of If-None-Match with tag (RFC 9110, section
// 13.1.2): the comparison is weak, and * matches every tag.
func anyMatches(lines []string, tag string) bool {
	for _, line := range lines {
		for candidate := range strings.SplitSeq(line, ",") {
			candidate = strings.TrimPrefix(strings.TrimSpace(candidate), "W/")
			if candidate == tag || candidate == "*" {
				return true
			}
		}
	}
	return false
}
