package httpapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast"
	"github.com/holdfast/holdfast/internal/live"
	"github.com/holdfast/holdfast/internal/telemetry"
)

// Live is what live connections are made over. The caller runs the hub's Run.
type Live struct {
	Hub *live.Hub
	// Origins are those whose pages may connect besides the service's own:
	// scheme://host or scheme://host:port, as browsers send them.
	Origins []string
}

// LivePath is where live connections are opened. The query of such a request
// has a ticket, so it is not for logs or traces.
const LivePath = "/v1/live"

// ticketJSON is a ticket. The form that is stored under an idempotency key is
// without it.
type ticketJSON struct {
	Ticket    *string   `json:"ticket" doc:"The ticket, which only the first response has; null in a repetition."`
	ExpiresAt time.Time `json:"expires_at"`
}

// WithoutSecrets leaves the ticket out.
func (t ticketJSON) WithoutSecrets() any {
	t.Ticket = nil
	return t
}

func (s *service) mintTicket() endpoint[struct{}, emptyBody] {
	return endpoint[struct{}, emptyBody]{
		id: "mint-live-ticket", method: http.MethodPost, path: LivePath + "/tickets", tag: tagLive, scope: anyScope,
		summary: "Make a ticket for a live connection",
		doc: fmt.Sprintf("A ticket opens one connection to `%s`, within %d s. The connection has the tenant and the scopes of the key. "+
			"A page of a browser gets its ticket from a service that has the key, and needs no key of its own.\n\n"+
			"The ticket is not stored. A repetition under the same idempotency key has null in its place.", LivePath, int(live.TicketTTL.Seconds())),
		responses: map[int]any{http.StatusCreated: ticketJSON{}},
		problems:  []kind{liveLimit},
		handle: func(ctx context.Context, req *request, _ *struct{}, _ *emptyBody) (response, error) {
			ticket, err := holdfast.Once(ctx, s.tenant(req), "MintTicket", nil, func(ctx context.Context, tx pgx.Tx) (ticketJSON, error) {
				minted, err := live.MintTx(ctx, tx, req.principal)
				return ticketJSON{Ticket: new(s.ticketOf(minted.Plaintext)), ExpiresAt: minted.ExpiresAt.UTC()}, err
			}, req.opts())
			resp, err := req.respond(ticket, err)
			resp.status = http.StatusCreated
			return resp, err
		},
	}
}

const connectDoc = `A WebSocket (RFC 6455). The client sends {"subscribe":"<channel>"} and {"unsubscribe":"<channel>"}. It receives frames
{"channel","event","version","payload"}: for each channel first the event ` + "`snapshot`" + ` with the state, then deltas with the versions that
follow. A frame that combines several events also has ` + "`first_version`" + `. After a gap the next frame is a snapshot again.

Browsers send an Origin, which must be the service's own or one that it was configured to allow.`

// addConnect adds the endpoint of live connections. Huma can't register it,
// because it has no HTTP response.
func (s *service) addConnect() {
	s.mux.HandleFunc("GET "+LivePath, s.connectLive)
	responses := s.failures([]kind{malformedUpgrade, ticketRefused, originRefused, upgradeRequired, liveLimit, internalError, overloaded})
	responses["101"] = &huma.Response{Description: http.StatusText(http.StatusSwitchingProtocols)}
	s.api.OpenAPI().AddOperation(&huma.Operation{
		OperationID: "connect-live", Method: http.MethodGet, Path: LivePath, Tags: []string{tagLive},
		Summary: "Open a live connection", Description: connectDoc, Security: []map[string][]string{}, Responses: responses,
		Parameters: []*huma.Param{{
			Name: "ticket", In: "query", Required: true, Description: "A ticket of this service, unused.", Schema: &huma.Schema{Type: huma.TypeString},
		}},
	})
}

// Errors of requests for a live connection.
var (
	errNoUpgrade  = errors.New("no upgrade to a WebSocket")
	errBadUpgrade = errors.New("an invalid upgrade to a WebSocket")
	errOrigin     = errors.New("an origin that is not allowed")
)

// connectLive serves a live connection until it ends.
func (s *service) connectLive(w http.ResponseWriter, r *http.Request) {
	ticket := r.URL.Query()["ticket"]
	r = r.Clone(r.Context())
	r.URL.RawQuery, r.RequestURI = "", LivePath // nothing after this can repeat the ticket
	holder, err := s.takeTicket(r, ticket)
	if err == nil {
		err = s.live.Hub.Serve(w, r, holder)
	}
	if err == nil {
		return
	}
	resp := s.errorResponse(r.Context(), err)
	if errors.Is(err, errNoUpgrade) {
		resp = resp.with("Upgrade", "websocket").with("Connection", "Upgrade").with("Sec-WebSocket-Version", "13")
	}
	resp.write(w)
}

// takeTicket checks the request and uses its ticket up.
func (s *service) takeTicket(r *http.Request, ticket []string) (holder live.Holder, err error) {
	ctx, done := telemetry.Verb(r.Context(), "httpapi.connect_live")
	defer func() { done(outcomeOf(err)) }()
	switch {
	case !wantsUpgrade(r):
		return live.Holder{}, errNoUpgrade
	case len(r.Header.Values("Sec-WebSocket-Key")) != 1 || r.ContentLength != 0:
		return live.Holder{}, errBadUpgrade
	case !s.allowsOrigin(r):
		return live.Holder{}, errOrigin
	case len(ticket) != 1:
		return live.Holder{}, live.ErrTicketRefused
	}
	ctx, cancel := context.WithTimeout(ctx, s.bounds.authenticate)
	defer cancel()
	return live.Take(ctx, s.pool, strings.TrimPrefix(ticket[0], s.ticketOf("")))
}

// ticketOf adds the name of the cell to a ticket, where there are several.
func (s *service) ticketOf(plaintext string) string {
	if s.cell == "" {
		return plaintext
	}
	return s.cell + ticketSeparator + plaintext
}

// wantsUpgrade reports whether the client asks for a WebSocket of the version
// that this service has (RFC 6455, section 4.2.1).
func wantsUpgrade(r *http.Request) bool {
	return r.Method == http.MethodGet && r.ProtoAtLeast(1, 1) && hasToken(r.Header, "Connection", "upgrade") &&
		hasToken(r.Header, "Upgrade", "websocket") && r.Header.Get("Sec-WebSocket-Version") == "13"
}

// hasToken reports whether a header field that is a list has the token.
func hasToken(h http.Header, name, token string) bool {
	for _, value := range h.Values(name) {
		for part := range strings.SplitSeq(value, ",") {
			if strings.EqualFold(strings.TrimSpace(part), token) {
				return true
			}
		}
	}
	return false
}

// allowsOrigin reports whether the page that connects is the service's own, is
// of an allowed origin, or does not exist because the client is no browser.
// Only Host counts as the service's own name: a client can send any
// X-Forwarded-Host.
func (s *service) allowsOrigin(r *http.Request) bool {
	origins := r.Header.Values("Origin")
	switch len(origins) {
	case 0:
		return true
	case 1:
	default:
		return false
	}
	if slices.ContainsFunc(s.live.Origins, func(allowed string) bool { return strings.EqualFold(allowed, origins[0]) }) {
		return true
	}
	u, err := url.Parse(origins[0])
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" && strings.EqualFold(u.Host, r.Host)
}
