package programtest

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/internal/verify"
	"github.com/holdfast/holdfast/inventory"
	"github.com/holdfast/holdfast/queues"
	"github.com/holdfast/holdfast/queues/hot"
	"github.com/holdfast/holdfast/requests"
	"github.com/holdfast/holdfast/tenants"
)

// Shop is a tenant in a database of its own, for programs to work on.
type Shop struct {
	// URL is the database's, for a program's environment; DB a pool of the test's own.
	URL    string
	DB     *pgxpool.Pool
	Tenant uuid.UUID

	t    testing.TB
	bell *queues.Bell
}

// NewShop makes a database with a tenant.
func NewShop(t testing.TB) *Shop {
	t.Helper()
	s := &Shop{URL: pgtest.URL(t), t: t}
	s.DB = Open(t, s.URL)
	tenant, err := tenants.Ensure(t.Context(), s.DB, "shop")
	s.must(err)
	s.Tenant = tenant.TenantID
	s.bell, err = queues.NewBell(s.DB)
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

// Env is a program's environment on the shop's database, with more variables as name, value, name, value.
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
	s.must(hot.Pin(s.t.Context(), s.DB, s.bell, s.Tenant, variantID))
}

// Admit queues requests for one unit each, each from a cart of its own.
func (s *Shop) Admit(variantID string, count int) {
	s.t.Helper()
	intake, err := requests.NewIntake(s.DB, s.bell, requests.IntakeConfig{})
	s.must(err)
	running, stop := context.WithCancel(s.t.Context())
	var line, group errgroup.Group
	line.Go(func() error { return intake.Run(running) })
	group.SetLimit(64)
	for i := range count {
		group.Go(func() error {
			_, err := intake.Submit(running, requests.Submission{
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

// Count is how many requests are in which state, and how many holds there are.
type Count struct{ Unfinished, Done, Failed, Held int }

// Count counts.
func (s *Shop) Count() (c Count) {
	s.t.Helper()
	s.must(s.DB.QueryRow(s.t.Context(), countSQL).Scan(&c.Unfinished, &c.Done, &c.Failed, &c.Held))
	return c
}

// Number is what a statement returns.
func (s *Shop) Number(sql string) (n int) {
	s.t.Helper()
	s.must(s.DB.QueryRow(s.t.Context(), sql).Scan(&n))
	return n
}

// Dump is every row of every table as text, in which bytes are hexadecimal.
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

// Until asks again and again until the answer is yes.
func (s *Shop) Until(what string, yes func() bool) {
	s.t.Helper()
	Until(s.t, what, yes)
}

// Until asks again and again until the answer is yes.
func Until(t testing.TB, what string, yes func() bool) {
	t.Helper()
	over := time.NewTimer(endTimeout)
	defer over.Stop()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !yes() {
		select {
		case <-tick.C:
		case <-over.C:
			t.Fatalf("not within %s: %s", endTimeout, what)
		}
	}
}

// Verify checks every invariant.
func (s *Shop) Verify() {
	s.t.Helper()
	report, err := verify.Run(s.t.Context(), s.DB)
	s.must(err)
	if diff := cmp.Diff(true, report.OK); diff != "" {
		s.t.Errorf("%s", report.Summary())
	}
}

func (s *Shop) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// FreePort is a port of the loopback interface that was free a moment ago.
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
