package traffic

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strconv"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/sethvargo/go-envconfig"

	"github.com/holdfast/holdfast/cmd/internal/boot"
	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/internal/tenants"
	"github.com/holdfast/holdfast/verify"
)

// service is the all-in-one on a new database, which can be stopped and started
// again.
type service struct {
	t      *testing.T
	db     *pgxpool.Pool
	key    string
	tenant uuid.UUID

	mu    sync.Mutex
	local *boot.Local
	port  string
}

func start(t *testing.T) *service {
	t.Helper()
	s := &service{t: t, db: pgtest.New(t), port: "0"}
	s.start()
	t.Cleanup(s.stop)
	tenant, err := tenants.Ensure(t.Context(), s.db, "grocer")
	if err != nil {
		t.Fatal(err)
	}
	s.tenant = tenant.TenantID
	if s.key, _, err = tenants.CreateKey(t.Context(), s.db, s.tenant, "till", tenants.AllScopes()); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *service) start() {
	program, err := boot.NewProgram(s.t.Context(), "holdfast", boot.Process{
		Env: envconfig.MapLookuper(map[string]string{
			"DATABASE_URL": s.db.Config().ConnString(), "PORT": s.port, "LOG_LEVEL": "error", "STOP_WITHIN": "5m",
		}),
		Stdout: io.Discard, Stderr: s.t.Output(),
	})
	if err != nil {
		s.t.Error(err)
		return
	}
	local, err := boot.StartLocal(s.t.Context(), program, boot.LocalOptions{})
	if err != nil {
		s.t.Error(err)
		return
	}
	at, err := url.Parse(local.URL)
	if err != nil {
		s.t.Error(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.local, s.port = local, at.Port()
}

func (s *service) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.local != nil {
		if err := s.local.Stop(); err != nil {
			s.t.Error(err)
		}
		s.local = nil
	}
}

func (s *service) url() string { return "http://127.0.0.1:" + s.port }

// count returns the number that a query selects.
func (s *service) count(sql string, args ...any) int {
	s.t.Helper()
	return int(pgtest.Int(s.t, s.db, sql, args...))
}

// mustVerify fails the test unless every invariant holds.
func (s *service) mustVerify() {
	s.t.Helper()
	report, err := verify.Run(s.t.Context(), s.db, verify.Config{})
	if err != nil {
		s.t.Fatal(err)
	}
	if !report.OK {
		report.Print(s.t.Output())
		s.t.Error(report.Summary())
	}
}

// through serves the service through a proxy that calls meddle with each call
// and its number. If meddle returns true, it has answered the call. after is
// called once the service has answered, before the answer is passed on.
func (s *service) through(meddle func(n int, w http.ResponseWriter, r *http.Request) bool, after func(n int, a *http.Response) error) string {
	s.t.Helper()
	to, err := url.Parse(s.url())
	if err != nil {
		s.t.Fatal(err)
	}
	const numbered = "X-Test-Call"
	proxy := &httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(to) },
		Transport: &http.Transport{MaxIdleConnsPerHost: 64},
		ModifyResponse: func(a *http.Response) error {
			n, err := strconv.Atoi(a.Request.Header.Get(numbered))
			if err != nil || after == nil {
				return err
			}
			return after(n, a)
		},
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
	var mu sync.Mutex
	calls := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		calls++
		n := calls
		mu.Unlock()
		if meddle != nil && meddle(n, w, r) {
			return
		}
		r.Header.Set(numbered, strconv.Itoa(n))
		proxy.ServeHTTP(w, r)
	}))
	s.t.Cleanup(server.Close)
	return server.URL
}
