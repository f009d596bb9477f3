package httpapi

import (
	"context"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/inventory"
	"github.com/holdfast/holdfast/requests"
	"github.com/holdfast/holdfast/tenants"
	"github.com/holdfast/holdfast/verbs"
)

// service is the API.
type service struct {
	pool    *pgxpool.Pool
	intake  *requests.Intake
	groups  *verbs.Groups // nil for none
	watcher *requests.Watcher
	ringer  requests.Ringer
	keys    *tenants.Authenticator
	terms   inventory.Terms
	// metering is nil while metered commands are off.
	metering *Metering
	log      *slog.Logger
	bounds   bounds
	limits   Limits
	// onStop calls f when the program begins to stop, unless release is called before.
	onStop func(f func()) (release func() bool)

	router   *router
	api      huma.API
	document []byte
	migrated atomic.Bool  // the database was seen with every migration
	waiting  atomic.Int64 // callers who wait for a request to finish
}

// New makes the API over what it uses: the pool of the database; the intake, the groups of the verbs that finish at
// once, which may be nil, and the watcher, whose Run methods the caller runs; ringer for the wakes of variants that change lanes; the authenticator of API keys; the terms of
// holds, of which only the lifetime cap counts here; what calls are counted in, nil while metered commands are off;
// metrics, the handler of /metrics, which may be nil; and the limits of a connection. ctx ends when the program begins to
// stop: bodies that are still arriving then have Limits.StopTime left.
//
// A server of the handler should have a ReadHeaderTimeout and a ReadTimeout, which also bound what the server answers
// itself, and no WriteTimeout. The handler replaces the ReadTimeout by its own limits, so that a long poll is not cut.
func New(ctx context.Context, pool *pgxpool.Pool, intake *requests.Intake, groups *verbs.Groups, watcher *requests.Watcher, ringer requests.Ringer,
	keys *tenants.Authenticator, terms inventory.Terms, metering *Metering, metrics http.Handler, log *slog.Logger, limits Limits,
) (http.Handler, error) {
	terms, err := terms.WithDefaults()
	if err != nil {
		return nil, err
	}
	if err := metering.validate(); err != nil {
		return nil, err
	}
	s := &service{
		pool: pool, intake: intake, groups: groups, watcher: watcher, ringer: ringer, keys: keys, terms: terms, metering: metering, log: log,
		bounds: defaultBounds, limits: limits.withDefaults(), onStop: func(f func()) func() bool { return context.AfterFunc(ctx, f) },
	}
	if err := s.build(); err != nil {
		return nil, err
	}
	if metrics != nil {
		s.router.mux.Handle("GET /metrics", metrics)
	}
	return s, nil
}

// OpenAPI returns the OpenAPI 3.1 document of the whole API, metered commands included, as indented JSON that ends in a
// line feed. It needs no database and is the same each time.
func OpenAPI() ([]byte, error) {
	s := &service{metering: &Metering{}}
	if err := s.build(); err != nil {
		return nil, err
	}
	return s.document, nil
}

// adopt gives huma's own errors this package's form. Huma keeps that in variables of its package, which no other package
// here uses.
var adopt = sync.OnceFunc(func() {
	huma.NewErrorWithContext = humaProblem
	huma.NewError = func(status int, message string, errs ...error) huma.StatusError {
		return humaProblem(nil, status, message, errs...)
	}
})

// build registers every endpoint.
func (s *service) build() error {
	adopt()
	s.router = newRouter(s.lost)
	config := huma.Config{
		OpenAPI: blankDocument(),
		Formats: map[string]huma.Format{"application/json": huma.DefaultJSONFormat, "json": huma.DefaultJSONFormat},
		// An answer may get more fields later; a body may not, see documentBody.
		RejectUnknownQueryParameters: true,
	}
	config.AllowAdditionalPropertiesByDefault = true
	s.api = humago.New(s.router, config)

	s.addStocks()
	s.addCarts()
	s.addAdmissions()
	s.addRequests()
	s.addReservations()
	s.addLanes()
	s.addProbes()
	s.addDocs()
	return s.finishDocument()
}

func (s *service) addStocks() {
	add(s, s.putStock())
	add(s, s.adjustStock())
	add(s, s.getStock())
	add(s, s.listStocks())
	add(s, s.importStocks())
}

func (s *service) addCarts() {
	add(s, s.addItem())
	add(s, s.setItem())
	add(s, s.removeItem())
	add(s, s.removeCart())
	add(s, s.getCart())
	add(s, s.extendCart())
	add(s, s.checkoutCart())
}

// addAdmissions leaves the path out while metered commands are off: it is 404 then, whatever the method.
func (s *service) addAdmissions() {
	if s.metering != nil {
		add(s, s.mintAdmission())
	}
}

func (s *service) addRequests() { add(s, s.getRequest()) }

func (s *service) addReservations() {
	add(s, s.getReservation())
	add(s, s.reservationHistory())
	add(s, s.commitReservation())
	add(s, s.releaseReservation())
	add(s, s.extendReservation())
}

func (s *service) addLanes() {
	add(s, s.listLanes())
	add(s, s.controlLane())
}

func (s *service) addProbes() {
	add(s, s.livez())
	add(s, s.readyz())
	add(s, s.health())
	s.documentMetrics()
}

// ServeHTTP serves one call.
func (s *service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	connection, bounded := s.connect(w, r)
	defer connection.end()
	c := begin(connection, bounded)
	defer func() {
		r.Pattern = c.r.Pattern // for whoever measures around this handler
		if broken := recover(); broken != nil {
			s.recovered(c, broken)
		}
	}()
	s.router.ServeHTTP(c.w, c.r)
}

// recovered answers a call that panicked.
func (s *service) recovered(c *call, broken any) {
	if broken == http.ErrAbortHandler { //nolint:errorlint // it is compared as the server compares it
		panic(broken)
	}
	s.log.ErrorContext(c.r.Context(), "a call panicked", "panic", broken, "stack", string(debug.Stack()))
	internalError.problem().answer().write(c.w)
}

// lost answers what no endpoint matches: OPTIONS, a method that the path does not have, a path that is none.
func (s *service) lost(w http.ResponseWriter, r *http.Request) {
	allowed := s.router.allowed(r)
	switch {
	case len(allowed) == 0:
		s.refuse(r.Context(), errNoRoute).write(w)
	case r.Method == http.MethodOptions:
		answer{status: http.StatusNoContent}.with("Allow", allow(allowed)).write(w)
	default:
		s.refuse(r.Context(), errMethod).with("Allow", allow(allowed)).write(w)
	}
}

func allow(methods []string) string { return strings.Join(append(methods, http.MethodOptions), ", ") }
