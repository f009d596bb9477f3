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

	"github.com/holdfast/holdfast/requests"
	"github.com/holdfast/holdfast/tenants"
)

type getRequestParams struct {
	RequestID uuid.UUID `path:"request_id" format:"uuid"`
	Wait      int       `query:"wait" minimum:"1" maximum:"30" doc:"Wait up to so many seconds for the request to finish."`
}

func (s *service) getRequest() endpoint[getRequestParams, none] {
	return endpoint[getRequestParams, none]{
		id: "get-request", method: http.MethodGet, path: "/v1/requests/{request_id}", tag: tagRequests, scope: tenants.ScopeCart,
		summary: "Read a request",
		doc: "With wait it answers once the request is finished or the time is over, whichever comes first. With If-None-Match it " +
			"answers 304 if nothing has changed by then.",
		answers:  map[int]any{http.StatusOK: requestJSON{}, http.StatusNotModified: nil},
		problems: []kind{notFound},
		headers: []*huma.Param{{
			Name: "If-None-Match", In: "header", Schema: &huma.Schema{Type: huma.TypeString}, Description: "The ETag of an earlier answer.",
		}},
		replies: map[string]*huma.Param{"ETag": {Description: "Names this state of the request.", Schema: &huma.Schema{Type: huma.TypeString}}},
		timeout: waitTimeout,
		handle: func(ctx context.Context, c *call, p *getRequestParams, _ *none) (answer, error) {
			v, err := s.look(ctx, c, p)
			if err != nil {
				return answer{}, err
			}
			a := respond(http.StatusOK, requestBody(v))
			tag := entityTag(a.body)
			if anyMatches(c.r.Header.Values("If-None-Match"), tag) {
				a = answer{status: http.StatusNotModified}
			}
			return a.with("ETag", tag).with("Cache-Control", "private, no-cache"), nil
		},
	}
}

func (s *service) look(ctx context.Context, c *call, p *getRequestParams) (requests.View, error) {
	if p.Wait > 0 {
		return s.wait(ctx, c, p.RequestID, time.Duration(p.Wait)*time.Second)
	}
	ctx, cancel := context.WithTimeout(ctx, s.bounds.call)
	defer cancel()
	return requests.Get(ctx, s.pool, c.who.TenantID, p.RequestID)
}

// entityTag is a strong tag: another for any other body.
func entityTag(body []byte) string {
	sum := sha256.Sum256(body)
	return `"` + hex.EncodeToString(sum[:16]) + `"`
}

// anyMatches compares as If-None-Match does (RFC 9110): weakly, and * matches all.
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
