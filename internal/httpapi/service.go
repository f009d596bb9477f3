package httpapi

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast"
	"github.com/holdfast/holdfast/internal/telemetry"
	"github.com/holdfast/holdfast/internal/tenants"
)

// service is the API.
type service struct {
	version  string // of the document
	client   *holdfast.Client
	pool     *pgxpool.Pool
	keys     *tenants.Authenticator
	metered  bool
	codes    []string // of the problems, for the document
	live     *Live    // nil where there are no live connections
	overview Overview // nil for none
	cell     string   // "" for none
	links    []Link
	log      *slog.Logger
	bounds   bounds
	connections

	mux      *http.ServeMux
	direct   map[string]func(*request) bool // see router
	api      huma.API
	document []byte
	migrated atomic.Bool // the database had every migration
	streams  openStreams
}

// Config is what the API is made over. All fields are required but for those
// whose comment names a default. The caller starts the client.
type Config struct {
	// Version is the release of the program, for the document.
	Version string
	// Client makes the calls of tenants. Pool is for what the API itself reads.
	Client *holdfast.Client
	Pool   *pgxpool.Pool
	Keys   *tenants.Authenticator
	// Metered means that metered commands are on; see holdfast.Config.Rates.
	Metered bool
	// Live serves live connections; nil: there are none.
	Live *Live
	// Overview serves GET /v1/ops/overview; nil: there is no such path.
	Overview Overview
	// Cell is the name of the database, if it is one of several; see Cell.
	Cell string
	// Links are pages beside the API, for the page at the root.
	Links []Link
	// Metrics serves GET /metrics; nil: there is no such path.
	Metrics http.Handler
	Log     *slog.Logger
	// Limits bound the connections; a field that is 0 has its default.
	Limits Limits
}

// New makes the API. When ctx ends, the program begins to stop: bodies that are
// still arriving then have Limits.StopTime left.
//
// A server of the handler should have a ReadHeaderTimeout and a ReadTimeout,
// which also bound the responses that the server sends itself, and no
// WriteTimeout. The handler replaces the ReadTimeout by its own limits, so that
// a long poll is not cut.
func New(ctx context.Context, c Config) (http.Handler, error) {
	s := &service{
		version: c.Version, client: c.Client, pool: c.Pool, keys: c.Keys, metered: c.Metered, live: c.Live, overview: c.Overview, cell: c.Cell, links: c.Links, log: c.Log,
		bounds: defaultBounds, connections: connections{limits: c.Limits.withDefaults(), onStop: onEnd(ctx)},
	}
	if err := s.build(); err != nil {
		return nil, err
	}
	if c.Metrics != nil {
		s.mux.Handle("GET /metrics", c.Metrics)
	}
	return s, nil
}

// tenant is whose key the request has.
func (s *service) tenant(req *request) *holdfast.Tenant {
	return s.client.TenantByID(req.principal.TenantID)
}

// OpenAPI returns the OpenAPI 3.1 document of the whole API, metered commands
// included, as indented JSON that ends in a line feed. It needs no database and
// is the same each time. The version is its info.version; without one that is
// 0.0.0.
func OpenAPI(version string) ([]byte, error) {
	s := &service{
		version: version, metered: true, live: &Live{},
		overview: func(context.Context, uuid.UUID) (json.RawMessage, error) { return nil, nil },
	}
	if err := s.build(); err != nil {
		return nil, err
	}
	return s.document, nil
}

// installHumaErrors makes huma's errors problems of this package. Huma has
// package variables for that, which no other package here uses.
var installHumaErrors = sync.OnceFunc(func() {
	huma.NewErrorWithContext = humaProblem
	huma.NewError = func(status int, message string, errs ...error) huma.StatusError {
		return humaProblem(nil, status, message, errs...)
	}
})

// prepare makes the mux and the API, without endpoints.
func (s *service) prepare() {
	installHumaErrors()
	s.direct = make(map[string]func(*request) bool)
	s.mux = http.NewServeMux()
	s.mux.HandleFunc("/", s.notFound)
	config := huma.Config{
		OpenAPI: blankDocument(s.version),
		Formats: map[string]huma.Format{"application/json": huma.DefaultJSONFormat, "json": huma.DefaultJSONFormat},
		// The body of a response may get more fields later. For the bodies of
		// requests see documentBody.
		RejectUnknownQueryParameters: true,
	}
	config.AllowAdditionalPropertiesByDefault = true
	s.api = humago.New(router{s.mux, s.direct}, config)
}

// build registers every endpoint.
func (s *service) build() error {
	s.prepare()
	s.addStocks()
	s.addUnits()
	s.addCarts()
	s.addCheckouts()
	s.addAdmissions()
	s.addRequests()
	s.addReservations()
	s.addLanes()
	s.addSearch()
	s.addLive()
	s.addOps()
	s.addProbes()
	if err := s.addDocs(); err != nil {
		return err
	}
	return s.finishDocument()
}

func (s *service) addStocks() {
	add(s, s.putStock())
	add(s, s.adjustStock())
	add(s, s.transferStock())
	add(s, s.deleteStock())
	add(s, s.getStock())
	add(s, s.listStocks())
	add(s, s.importStocks())
	add(s, s.putGroup())
	add(s, s.getGroup())
	add(s, s.putAllotment())
	add(s, s.getAllotment())
	add(s, s.listAllotments())
	add(s, s.endAllotment())
	add(s, s.putKit())
	add(s, s.getKit())
	add(s, s.listKits())
	add(s, s.deleteKit())
}

func (s *service) addUnits() {
	add(s, s.importUnits())
	add(s, s.listUnits())
	add(s, s.getUnit())
}

func (s *service) addCarts() {
	add(s, s.addItem())
	add(s, s.setItem())
	add(s, s.removeItem())
	add(s, s.removeKit())
	add(s, s.removeCart())
	add(s, s.getCart())
	add(s, s.extendCart())
	add(s, s.checkoutCart())
	add(s, s.transferCart())
}

func (s *service) addCheckouts() {
	add(s, s.beginCheckout())
	add(s, s.getCheckout())
	add(s, s.answerCheckout())
}

// addAdmissions registers nothing while metered commands are off. The path is
// then 404 with any method.
func (s *service) addAdmissions() {
	if s.metered {
		add(s, s.mintAdmission())
	}
}

func (s *service) addRequests() {
	add(s, s.getRequest())
	add(s, s.requestEvents())
	add(s, s.retryRequest())
}

func (s *service) addReservations() {
	add(s, s.getReservation())
	add(s, s.reservationHistory())
	add(s, s.commitReservation())
	add(s, s.releaseReservation())
	add(s, s.returnReservation())
	add(s, s.extendReservation())
}

func (s *service) addLanes() {
	add(s, s.listLanes())
	add(s, s.controlLane())
	add(s, s.pinVariant())
	add(s, s.unpinVariant())
}

func (s *service) addSearch() {
	add(s, s.search())
	add(s, s.timeline())
}

// addLive registers nothing without a hub. The paths are then 404.
func (s *service) addLive() {
	if s.live != nil {
		add(s, s.mintTicket())
		s.addConnect()
		add(s, s.stockEvents())
	}
}

func (s *service) addProbes() {
	add(s, s.livez())
	add(s, s.readyz())
	add(s, s.health())
	s.documentMetrics()
}

// ServeHTTP serves one request.
func (s *service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	connection, bounded := s.connect(w, r)
	defer connection.release()
	if s.cell != "" {
		bounded = bounded.WithContext(telemetry.WithCell(bounded.Context(), s.cell))
	}
	req := newRequest(connection, bounded)
	s.respond(req)
	r.Pattern = req.http.Pattern // for handlers around this one
	connection.end()
}

// respond serves one request.
func (s *service) respond(req *request) {
	defer func() {
		if broken := recover(); broken != nil {
			s.recovered(req, broken)
		}
	}()
	// The mux has responses of its own to the target * (RFC 9112, section
	// 3.2.4) and to CONNECT.
	if req.http.RequestURI == "*" || req.http.Method == http.MethodConnect {
		s.notFound(req.w, req.http)
		return
	}
	s.mux.ServeHTTP(req.w, req.http)
}

// recovered responds to a request whose handler panicked.
func (s *service) recovered(req *request, broken any) {
	if broken == http.ErrAbortHandler { //nolint:errorlint // it is compared as the server compares it
		panic(broken)
	}
	s.log.ErrorContext(req.http.Context(), "a request panicked", "panic", broken, "stack", string(debug.Stack()))
	internalError.problem().response().write(req.w)
}

// notFound responds to requests that no endpoint matches: OPTIONS, a method
// that the path does not have, an unknown path.
func (s *service) notFound(w http.ResponseWriter, r *http.Request) {
	allowed := s.allowed(r)
	switch {
	case len(allowed) == 0:
		s.errorResponse(r.Context(), errNoRoute).write(w)
	case r.Method == http.MethodOptions:
		response{status: http.StatusNoContent}.with("Allow", allow(allowed)).write(w)
	default:
		s.errorResponse(r.Context(), errMethod).with("Allow", allow(allowed)).write(w)
	}
}

// methods are those that an endpoint may have, in the order of the header
// Allow.
var methods = []string{http.MethodGet, http.MethodHead, http.MethodPut, http.MethodPost, http.MethodPatch, http.MethodDelete}

// allowed returns the methods that the path of r has an endpoint for.
func (s *service) allowed(r *http.Request) (allowed []string) {
	probe := &http.Request{URL: r.URL, Host: r.Host}
	for _, method := range methods {
		probe.Method = method
		if _, pattern := s.mux.Handler(probe); pattern != "/" && pattern != "" {
			allowed = append(allowed, method)
		}
	}
	return allowed
}

func allow(methods []string) string { return strings.Join(append(methods, http.MethodOptions), ", ") }
