package programtest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/holdfast/holdfast/internal/admission"
	"github.com/holdfast/holdfast/internal/lanes"
	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/internal/requestrows"
	"github.com/holdfast/holdfast/internal/tenants"
	"github.com/holdfast/holdfast/internal/testkit"
	"github.com/holdfast/holdfast/verify"
)

// Fixture is a tenant in a separate database, for programs to work on.
type Fixture struct {
	*testkit.Fixture
	// URL is the database's URL, for a program's environment.
	URL string
}

// NewFixture makes a database with the tenant "shop".
func NewFixture(t testing.TB) *Fixture {
	t.Helper()
	url := pgtest.URL(t)
	f := &Fixture{testkit.On(t, pgtest.Open(t, url), lanes.Normal), url}
	tenant, err := tenants.Ensure(t.Context(), f.DB, "shop")
	f.Must(err)
	f.Tenant = tenant.TenantID
	return f
}

// Env returns a program's environment on the fixture's database, with more
// variables as name, value, name, value.
func (f *Fixture) Env(more ...string) map[string]string {
	env := map[string]string{"DATABASE_URL": f.URL, "PORT": "0"}
	for i := 0; i < len(more); i += 2 {
		env[more[i]] = more[i+1]
	}
	return env
}

// Admit queues requests for one unit each, each from a different cart.
func (f *Fixture) Admit(variantID string, count int) {
	f.TB.Helper()
	intake := f.Intake(admission.IntakeConfig{})
	var group errgroup.Group
	group.SetLimit(64)
	for i := range count {
		group.Go(func() error {
			_, err := intake.Submit(f.TB.Context(), requestrows.Submission{
				TenantID: f.Tenant, CartID: fmt.Sprintf("cart-%s-%d", variantID, i), VariantID: variantID, Quantity: 1,
			})
			return err
		})
	}
	f.Must(group.Wait())
}

const countSQL = `
SELECT (SELECT count(*) FROM reservation_requests WHERE status IN ('queued', 'processing')),
       (SELECT count(*) FROM reservation_requests WHERE status = 'done'),
       (SELECT count(*) FROM reservation_requests WHERE status = 'failed'),
       (SELECT count(*) FROM reservations WHERE status = 'held')`

// Count is the number of requests by state, and of holds.
type Count struct{ Unfinished, Done, Failed, Held int }

// Count counts requests and holds.
func (f *Fixture) Count() (c Count) {
	f.TB.Helper()
	f.Must(f.DB.QueryRow(f.TB.Context(), countSQL).Scan(&c.Unfinished, &c.Done, &c.Failed, &c.Held))
	return c
}

// Await waits until the rows are as wanted.
func (f *Fixture) Await(want Count) {
	f.TB.Helper()
	f.Until(fmt.Sprintf("%+v", want), func() bool { return f.Count() == want })
}

// Dump returns every row of every table as text, with bytes in hexadecimal.
func (f *Fixture) Dump() string {
	f.TB.Helper()
	var out strings.Builder
	for _, table := range f.texts(`SELECT format('%I.%I', schemaname, tablename) FROM pg_tables WHERE schemaname IN ('public', 'river')`) {
		for _, row := range f.texts(`SELECT x::text FROM ` + table + ` AS x`) {
			fmt.Fprintf(&out, "%s: %s\n", strings.TrimPrefix(table, "public."), row)
		}
	}
	return out.String()
}

func (f *Fixture) texts(sql string) []string {
	f.TB.Helper()
	rows, err := f.DB.Query(f.TB.Context(), sql)
	f.Must(err)
	texts, err := pgx.CollectRows(rows, pgx.RowTo[string])
	f.Must(err)
	return texts
}

// Verify checks every invariant.
func (f *Fixture) Verify() {
	f.TB.Helper()
	report, err := verify.Run(f.TB.Context(), f.DB, verify.Config{})
	f.Must(err)
	if !report.OK {
		f.TB.Errorf("%s", report.Summary())
	}
}
