package boot

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/holdfast/holdfast/internal/admission"
	"github.com/holdfast/holdfast/internal/lanes"
	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/internal/queues"
	"github.com/holdfast/holdfast/internal/requestrows"
	"github.com/holdfast/holdfast/internal/testkit"
	"github.com/holdfast/holdfast/requests"
)

// setBack sets the sequences to the values of an early backup.
const setBack = `SELECT setval('reservation_requests_sequence_seq', 1), setval('audit_log_audit_id_seq', 1)`

// A database was restored without the values of its sequences. A program raises
// them before it draws a number, so the buyers who were accepted before the
// restore are decided before a later one.
func TestRestoredWithoutSequences(t *testing.T) {
	t.Parallel()
	b := testkit.New(t, lanes.Hot)
	b.Stock("shirt", 8)
	lane := b.Lane(queues.LaneConfig{Concurrency: 1})
	for _, cart := range []string{"first", "second"} {
		b.TickUntil(lane, b.Submit(cart, "shirt", 1))
	}
	var earlier []requests.Request
	for i := range 6 {
		earlier = append(earlier, b.Submit(fmt.Sprint("earlier-", i), "shirt", 1))
	}
	b.Exec(setBack)
	if err := requestrows.CheckSequences(t.Context(), b.DB); err == nil || !strings.Contains(err.Error(), "reservation_requests_sequence_seq") {
		t.Errorf("%v, want the sequence that is behind", err)
	}
	p, log := newTestProgram(t, map[string]string{"DATABASE_URL": b.DB.Config().ConnString()})
	db, err := p.openReady(t.Context(), pool{name: "test", conns: 4})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := requestrows.CheckSequences(t.Context(), b.DB); err != nil {
		t.Error(err)
	}
	if n := strings.Count(log.String(), "is raised"); n != 2 {
		t.Errorf("%d sequences are logged as raised, want 2:\n%s", n, log)
	}
	later := b.Submit("later", "shirt", 1)
	b.TickUntil(lane, later)
	for _, r := range earlier {
		b.Want(r, requests.Done, "")
	}
	b.Want(later, requests.Failed, "out_of_stock")
	b.CheckInvariants()
}

// Several programs raise a sequence at once, while others write. No number is
// drawn twice.
func TestSequencesAreRaisedOnce(t *testing.T) {
	t.Parallel()
	b := testkit.New(t, lanes.Hot)
	b.Stock("shirt", 1000)
	for i := range 10 {
		b.Submit(fmt.Sprint("earlier-", i), "shirt", 1)
	}
	highest := b.Int(`SELECT max(sequence) FROM reservation_requests`)
	b.Exec(setBack)
	p, _ := newTestProgram(t, map[string]string{"DATABASE_URL": b.DB.Config().ConnString()})
	var group errgroup.Group
	for i := range 4 {
		group.Go(func() error {
			db, err := p.openReady(t.Context(), pool{name: "test", conns: 1})
			if err != nil {
				return err
			}
			defer db.Close()
			for n := range 5 {
				err := pgx.BeginFunc(t.Context(), db, func(tx pgx.Tx) error {
					_, err := admission.SubmitTx(t.Context(), tx, b.Inserter, requestrows.Submission{
						TenantID: b.Tenant, CartID: fmt.Sprint("later-", i, "-", n), VariantID: "shirt", Quantity: 1,
					})
					return err
				})
				if err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	if n := b.Int(`SELECT count(*) FROM reservation_requests WHERE cart_id LIKE 'later%' AND sequence <= $1`, highest); n > 0 {
		t.Errorf("%d later requests come before earlier ones", n)
	}
	if n := b.Int(`SELECT count(*) - count(DISTINCT sequence) FROM reservation_requests`); n > 0 {
		t.Errorf("%d numbers were drawn twice", n)
	}
}

// A mark, a move or a subscription may be past every row that is left.
func TestSequencesBehindMarks(t *testing.T) {
	t.Parallel()
	for name, sql := range map[string]string{
		"mark":         `UPDATE lane_slots SET low_water = 5000 WHERE lane = 'normal' AND slot = 0`,
		"subscription": `INSERT INTO audit_subscriptions (name, position, settled, next, next_horizon) VALUES ('s', 5000, 5000, 5000, '1')`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			address := pgtest.URL(t)
			own := connect(t, address)
			pgtest.Exec(t, own, sql)
			p, log := newTestProgram(t, map[string]string{"DATABASE_URL": address})
			db, err := p.openReady(t.Context(), pool{name: "test", conns: 1})
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			if err := requestrows.CheckSequences(t.Context(), own); err != nil {
				t.Error(err)
			}
			if !strings.Contains(log.String(), "raised_to=5000") && !strings.Contains(log.String(), `"raised_to":5000`) {
				t.Errorf("the log is\n%s", log)
			}
		})
	}
}
