package verify_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/verify"
)

func TestRunOnNothing(t *testing.T) {
	t.Parallel()
	report, err := verify.Run(t.Context(), pgtest.New(t), verify.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if !report.OK || len(report.Checks) < 20 {
		t.Errorf("an empty database: ok %v, %d checks", report.OK, len(report.Checks))
	}
}

// TestRunOnWhatTheServiceWrote first checks that there is a row of every sort,
// so that no check passes for lack of rows.
func TestRunOnWhatTheServiceWrote(t *testing.T) {
	t.Parallel()
	s := newFixture(t)
	s.writeHistory()
	for _, sort := range []string{
		`SELECT count(*) FROM reservations WHERE status = 'held'`,
		`SELECT count(*) FROM reservations WHERE status = 'committed'`,
		`SELECT count(*) FROM reservations WHERE status = 'expired'`,
		`SELECT count(*) FROM reservations WHERE release_reason = 'replaced'`,
		`SELECT count(*) FROM reservations WHERE release_reason = 'cart_removed'`,
		`SELECT count(*) FROM reservation_requests WHERE status = 'queued'`,
		`SELECT count(*) FROM reservation_requests WHERE reason = 'out_of_stock' AND lane = 'hot'`,
		`SELECT count(*) FROM reservation_requests WHERE reason = 'unknown_variant'`,
		`SELECT count(*) FROM reservation_requests WHERE reason = 'cancelled'`,
		`SELECT count(*) FROM reservation_requests WHERE status = 'done' AND variant_id = 'ebook'`,
		`SELECT count(*) FROM inventory_stocks WHERE stock < reserved AND backorder`,
		`SELECT count(*) FROM inventory_stocks WHERE variant_id = 'flip' AND tracked`,
		`SELECT count(*) FROM audit_log WHERE action = 'reservation.extended'`,
		`SELECT count(*) FROM audit_log WHERE action = 'stock.adjusted'`,
		`SELECT count(*) FROM postings WHERE status = 'pending_inactive'`,
		`SELECT count(*) FROM postings WHERE status = 'inactive'`,
		`SELECT count(*) FROM checkouts WHERE status = 'committed'`,
		`SELECT count(*) FROM checkouts WHERE alert = 'paid_too_late'`,
		`SELECT count(*) FROM checkouts WHERE status = 'validating'`,
	} {
		if s.Int(sort) == 0 {
			t.Errorf("there is no row of the sort: %s", sort)
		}
	}
	report, err := verify.Run(t.Context(), s.DB, verify.Config{LifetimeMax: 2 * time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	if found := broken(report); len(found) > 0 {
		var out bytes.Buffer
		report.Print(&out)
		t.Errorf("the service broke %v:\n%s", found, &out)
	}
	if !strings.Contains(report.Summary(), "hold.") {
		t.Errorf("summary: %s", report.Summary())
	}
}

// TestRunWhileWorking runs the checks while buyers and drains work. A run has
// one snapshot, so it never sees a half-finished change.
func TestRunWhileWorking(t *testing.T) {
	t.Parallel()
	s := newFixture(t)
	traded := make(chan struct{})
	go func() {
		defer close(traded)
		s.writeHistory()
	}()
	for working := true; working; {
		select {
		case <-traded:
			working = false
		default:
		}
		report, err := verify.Run(context.Background(), s.DB, verify.Config{})
		if err != nil {
			t.Error(err)
			break
		}
		if found := broken(report); len(found) > 0 {
			t.Errorf("while the service works: %v", found)
		}
	}
	<-traded
}

func TestReport(t *testing.T) {
	t.Parallel()
	row := json.RawMessage(`{"request_id":"r-1"}`)
	report := verify.Report{Checks: []verify.Check{
		{Name: "first", Meaning: "One.", Sample: []json.RawMessage{}},
		{Name: "second", Meaning: "Two.", Broken: 1, Sample: []json.RawMessage{row}},
		{Name: "third", Meaning: "Three.", Broken: verify.BrokenMax, Sample: []json.RawMessage{row, row}},
	}, Notes: []verify.Note{{Name: "why", Meaning: "So.", Rows: 1, Sample: []json.RawMessage{row}}}}
	var out bytes.Buffer
	report.Print(&out)
	want := `ok      first   One.
BROKEN  second  Two.
        1 row, the first 1:
        {"request_id":"r-1"}
BROKEN  third   Three.
        10000 rows or more, the first 2:
        {"request_id":"r-1"}
        {"request_id":"r-1"}
note    why     So.
        1 row, the first 1:
        {"request_id":"r-1"}
2 of 3 invariants are broken: second (1 row), third (10000 rows or more)
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Error(diff)
	}
	text, err := json.Marshal(report.Checks[0])
	if err != nil || string(text) != `{"name":"first","meaning":"One.","broken":0,"sample":[]}` {
		t.Errorf("%s, %v", text, err)
	}
}

func TestConfig(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	for _, config := range []verify.Config{{Retention: -1}, {LifetimeMax: -1}, {StatementTimeout: time.Microsecond}} {
		if _, err := verify.Run(t.Context(), db, config); err == nil {
			t.Errorf("%+v was accepted", config)
		}
	}
}

// broken lists the checks that found something, sorted.
func broken(report verify.Report) (names []string) {
	for _, c := range report.Checks {
		if c.Broken > 0 {
			names = append(names, c.Name)
		}
	}
	slices.Sort(names)
	return names
}

// errUndo makes BeginFunc roll back.
var errUndo = errors.New("undo")

// try runs the statements and then the checks in one transaction, which it
// rolls back.
func (s *fixture) try(t *testing.T, config verify.Config, statements ...string) (report verify.Report) {
	t.Helper()
	err := pgx.BeginFunc(t.Context(), s.DB, func(tx pgx.Tx) error {
		for _, sql := range statements {
			tag, err := tx.Exec(t.Context(), sql)
			if err != nil {
				t.Fatalf("%s: %v", sql, err)
			}
			if tag.RowsAffected() == 0 && !strings.HasPrefix(sql, "ALTER") && !strings.HasPrefix(sql, "DROP") {
				t.Fatalf("%s: no row", sql)
			}
		}
		var err error
		if report, err = verify.RunTx(t.Context(), tx, config); err != nil {
			return err
		}
		return errUndo
	})
	if !errors.Is(err, errUndo) {
		t.Fatal(err)
	}
	return report
}

// The documentation names every check and every note.
func TestDocumented(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/verify.md")
	pgtest.Must(t, err)
	for _, name := range verify.Names() {
		if !bytes.Contains(page, []byte("`"+name+"`")) {
			t.Errorf("docs/verify.md does not name %s", name)
		}
	}
}
