package programtest

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/admission"
	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/internal/lanes"
	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/internal/queues"
	"github.com/holdfast/holdfast/internal/requestrows"
	"github.com/holdfast/holdfast/internal/tenants"
	"github.com/holdfast/holdfast/verify"
)

// Shop is a tenant in a separate database, for programs to work on.
type Shop struct {
	// URL is the database's URL, for a program's environment. DB is a pool for
	// the test.
	URL    string
	DB     *pgxpool.Pool
	Tenant uuid.UUID

	t        testing.TB
	inserter *queues.WakeInserter
}

// NewShop makes a database with a tenant.
func NewShop(t testing.TB) *Shop {
	t.Helper()
	s := &Shop{URL: pgtest.URL(t), t: t}
	s.DB = Open(t, s.URL)
	tenant, err := tenants.Ensure(t.Context(), s.DB, "shop")
	s.must(err)
	s.Tenant = tenant.TenantID
	s.inserter, err = queues.NewWakeInserter(s.DB)
	s.must(err)
	return s
}

// Open opens a pool to a database until the test ends.
func Open(t testing.TB, url string) *pgxpool.Pool {
	t.Helper()
	db, err := pgxpool.New(context.Background(), url)
	if err != nil {
		t.Fatalf("open %s: %v", url, err)
	}
	t.Cleanup(db.Close)
	return db
}

// Env returns a program's environment on the shop's database, with more
// variables as name, value, name, value.
func (s *Shop) Env(more ...string) map[string]string {
	env := map[string]string{"DATABASE_URL": s.URL, "PORT": "0"}
	for i := 0; i < len(more); i += 2 {
		env[more[i]] = more[i+1]
	}
	return env
}

// Stock gives a variant units.
func (s *Shop) Stock(variantID string, units int64) {
	s.t.Helper()
	_, err := inventory.Set(s.t.Context(), s.DB, s.Tenant, variantID, inventory.StockPatch{Stock: &units}, audit.Origin{Actor: audit.System()})
	s.must(err)
}

// Pin makes a variant hot.
func (s *Shop) Pin(variantID string) {
	s.t.Helper()
	s.must(lanes.Pin(s.t.Context(), s.DB, s.inserter, s.Tenant, variantID))
}

// Admit queues requests for one unit each, each from a different cart.
func (s *Shop) Admit(variantID string, count int) {
	s.t.Helper()
	intake, err := admission.NewIntake(s.DB, s.inserter, admission.IntakeConfig{})
	s.must(err)
	running, stop := context.WithCancel(s.t.Context())
	var line, group errgroup.Group
	line.Go(func() error { return intake.Run(running) })
	group.SetLimit(64)
	for i := range count {
		group.Go(func() error {
			_, err := intake.Submit(running, requestrows.Submission{
				TenantID: s.Tenant, CartID: fmt.Sprintf("cart-%s-%d", variantID, i), VariantID: variantID, Quantity: 1,
			})
			return err
		})
	}
	s.must(group.Wait())
	stop()
	s.must(line.Wait())
}

const countSQL = `
SELECT (SELECT count(*) FROM reservation_requests WHERE status IN ('queued', 'processing')),
       (SELECT count(*) FROM reservation_requests WHERE status = 'done'),
       (SELECT count(*) FROM reservation_requests WHERE status = 'failed'),
       (SELECT count(*) FROM reservations WHERE status = 'held')`

// Count is the number of requests by state, and of holds.
type Count struct{ Unfinished, Done, Failed, Held int }

// Count counts requests and holds.
func (s *Shop) Count() (c Count) {
	s.t.Helper()
	s.must(s.DB.QueryRow(s.t.Context(), countSQL).Scan(&c.Unfinished, &c.Done, &c.Failed, &c.Held))
	return c
}

// Number returns the number that a statement selects.
func (s *Shop) Number(sql string) (n int) {
	s.t.Helper()
	s.must(s.DB.QueryRow(s.t.Context(), sql).Scan(&n))
	return n
}

// Dump returns every row of every table as text, with bytes in hexadecimal.
func (s *Shop) Dump() string {
	s.t.Helper()
	var out strings.Builder
	for _, table := range s.texts(`SELECT format('%I.%I', schemaname, tablename) FROM pg_tables WHERE schemaname IN ('public', 'river')`) {
		for _, row := range s.texts(`SELECT x::text FROM ` + table + ` AS x`) {
			fmt.Fprintf(&out, "%s: %s\n", strings.TrimPrefix(table, "public."), row)
		}
	}
	return out.String()
}

func (s *Shop) texts(sql string) []string {
	s.t.Helper()
	rows, err := s.DB.Query(s.t.Context(), sql)
	s.must(err)
	texts, err := pgx.CollectRows(rows, pgx.RowTo[string])
	s.must(err)
	return texts
}

// Await waits until the rows are as wanted.
func (s *Shop) Await(want Count) {
	s.t.Helper()
	s.Until(fmt.Sprintf("%+v", want), func() bool { return s.Count() == want })
}

// Until polls until a condition holds, and fails the test after a minute.
func (s *Shop) Until(what string, holds func() bool) {
	s.t.Helper()
	pgtest.Until(s.t, what, holds)
}

// Verify checks every invariant.
func (s *Shop) Verify() {
	s.t.Helper()
	report, err := verify.Run(s.t.Context(), s.DB, verify.Config{})
	s.must(err)
	if diff := cmp.Diff(true, report.OK); diff != "" {
		s.t.Errorf("%s", report.Summary())
	}
}

func (s *Shop) must(err error) {
	s.t.Helper()
	pgtest.Must(s.t, err)
}

// FreePort returns a port of the loopback interface that was free a moment ago.
func FreePort(t testing.TB) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port
}
