package checkouts_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/holdfast/holdfast/internal/checkouts"
	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/internal/wiring"
)

// pairs is how many pairs of sagas TestPairs runs; its long form has 10,000.
var pairs = flag.Int("pairs", 300, "how many pairs of checkouts TestPairs runs")

const (
	pairWorkers   = 8
	pairsPerBlock = 2
	pairSeats     = 10
)

// saga is one of a pair, and what its payment has reported.
type saga struct {
	*fixture
	id     uuid.UUID
	random *rand.Rand
	paid   bool // reported as paid, whatever the answer was
	sold   bool // answered as committed
}

// Two sagas want overlapping units at the same time, 10,000 random pairs on 8
// workers, beside a recovery and a sweep. Each of them does one of what can
// happen to a checkout. Afterwards every saga has one ending, no unit is taken
// twice and none is pending.
func TestPairs(t *testing.T) {
	t.Parallel()
	s := newFixture(t)
	s.Exec(fmt.Sprintf(`ALTER DATABASE %q SET synchronous_commit = off`, s.DB.Config().ConnConfig.Database))
	s.DB = wide(t, s.DB)
	s.stock("shirt", int64(10**pairs))
	blocks := (*pairs + pairsPerBlock - 1) / pairsPerBlock
	for i := range blocks {
		s.seats(fmt.Sprint("hall", i), pairSeats)
	}
	ctx, stop := context.WithCancel(t.Context())
	var background errgroup.Group
	recovery := s.recovery(always(checkouts.ResultPaid))
	passes := &wiring.Passes{Log: slog.New(slog.DiscardHandler), Table: []wiring.Pass{{
		Name: "recover", Every: 5 * time.Millisecond,
		RunOnce: func(ctx context.Context) (bool, error) {
			report, err := recovery.RunOnce(ctx)
			return report.Unfinished(), err
		},
	}}}
	background.Go(func() error { return passes.RunFrequent(ctx, time.Minute) })
	sagas := make([]*saga, 2**pairs)
	var workers errgroup.Group
	places := make(chan int)
	for range pairWorkers {
		workers.Go(func() error {
			var failed error
			for i := range places {
				failed = errors.Join(failed, s.pair(i, sagas))
			}
			return failed
		})
	}
	for i := range *pairs {
		places <- i
	}
	close(places)
	s.Must(workers.Wait())
	stop()
	s.Must(background.Wait())
	s.settle()
	s.judge(sagas)
}

// wide returns a pool of the same database with a connection for each saga.
func wide(t testing.TB, db *pgxpool.Pool) *pgxpool.Pool {
	t.Helper()
	config := db.Config()
	config.MaxConns = 2*pairWorkers + 2
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	pgtest.Must(t, err)
	t.Cleanup(pool.Close)
	return pool
}

// pair runs the ith pair at once.
func (s *fixture) pair(i int, sagas []*saga) error {
	var both sync.WaitGroup
	errs := make([]error, 2)
	for j := range errs {
		of := &saga{fixture: s, random: rand.New(rand.NewPCG(uint64(i), uint64(j)))}
		sagas[2*i+j] = of
		both.Go(func() { errs[j] = of.run(fmt.Sprintf("cart%d-%d", i, j), fmt.Sprint("hall", i/pairsPerBlock)) })
	}
	both.Wait()
	return errors.Join(errs...)
}

// run holds random units, begins a checkout, and lets one of the things happen.
func (s *saga) run(cart, block string) error {
	ctx := s.TB.Context()
	units := s.random.Perm(pairSeats)[:1+s.random.IntN(4)]
	names := make([]string, len(units))
	for i, unit := range units {
		names[i] = fmt.Sprintf("s%d", unit+1)
	}
	_, outcome, err := s.tryHold(ctx, cart, block, int64(len(names)), names...)
	if err != nil || outcome == inventory.OutOfStock {
		return err
	}
	if s.random.IntN(2) == 0 {
		if _, _, err := s.tryHold(ctx, cart, "shirt", 1); err != nil {
			return err
		}
	}
	start := s.start(cart)
	called := s.random.IntN(6) == 0
	if called {
		start.CallbackURL = "https://pay.example"
	}
	c, err := checkouts.Begin(ctx, s.DB, start, s.config)
	if err != nil {
		return fmt.Errorf("%s: %w", cart, err)
	}
	s.id = c.CheckoutID
	if called {
		return nil // recovery asks the validator
	}
	return s.happen(ctx)
}

const (
	makeLateSQL = `UPDATE checkouts SET deadline = clock_timestamp(), next_attempt_at = clock_timestamp() WHERE checkout_id = $1 AND status = 'validating'`
	makeDueSQL  = `UPDATE reservations SET expires_at = clock_timestamp() WHERE checkout_id = $1 AND status = 'held'`
)

// happen lets up to four things happen to the checkout.
func (s *saga) happen(ctx context.Context) (err error) {
	for range 1 + s.random.IntN(4) {
		switch s.random.IntN(12) {
		case 0, 1, 2, 3, 4:
			err = s.report(ctx, checkouts.ResultPaid)
		case 5, 6:
			err = s.report(ctx, checkouts.ResultFailed)
		case 7: // the process dies between the two steps
			err = s.onlyRecord(ctx)
		case 8, 9:
			_, err = s.DB.Exec(ctx, makeLateSQL, s.id)
		case 10:
			err = pgtest.Lapse(ctx, s.DB, makeDueSQL, s.id)
		case 11:
			_, err = inventory.ExpireDue(ctx, s.DB, 100)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// report is a payment's answer.
func (s *saga) report(ctx context.Context, result checkouts.Result) error {
	c, err := checkouts.Answer(ctx, s.DB, s.payment(s.id, result), s.config)
	if _, ok := errors.AsType[*checkouts.ConflictError](err); err != nil && !ok {
		return err
	}
	s.paid = s.paid || result == checkouts.ResultPaid
	s.sold = s.sold || err == nil && c.Status == checkouts.Committed
	return nil
}

func (s *saga) onlyRecord(ctx context.Context) error {
	tx, err := s.DB.Begin(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(ctx) }()
	if _, err = checkouts.AnswerTx(ctx, tx, s.payment(s.id, checkouts.ResultPaid)); err != nil {
		return err
	}
	s.paid = true
	return tx.Commit(ctx)
}

// settle lets the time of all checkouts pass, and recovers until all have ended.
// A claim that the end of the recovery has cut may be committed after that.
func (s *fixture) settle() {
	s.TB.Helper()
	pgtest.Until(s.TB, "all checkouts have ended", func() bool {
		s.Exec(`UPDATE checkouts SET deadline = clock_timestamp() WHERE status = 'validating'`)
		s.recover(nil)
		return s.Int(`SELECT count(*) FROM checkouts WHERE ended_at IS NULL`) == 0
	})
	s.Exec(`UPDATE reservations SET expires_at = clock_timestamp() WHERE status = 'held' AND checkout_id IS NULL`)
	for s.Int(`SELECT count(*) FROM reservations WHERE status = 'held' AND expires_at <= clock_timestamp()`) > 0 {
		s.sweep()
	}
}

// judge fails the test unless every saga has one ending that agrees with what
// was reported, and every unit is taken once or free.
func (s *fixture) judge(sagas []*saga) {
	s.TB.Helper()
	endings := make(map[checkouts.Status]int)
	begun := int64(0)
	for _, of := range sagas {
		if of.id == uuid.Nil {
			continue
		}
		begun++
		c := s.get(of.id)
		endings[c.Status]++
		switch {
		case !c.Status.Ended():
			s.TB.Errorf("%s is %s", c.CartID, c.Status)
		case of.sold && c.Status != checkouts.Committed:
			s.TB.Errorf("%s was answered as committed and is %s", c.CartID, c.Status)
		case of.paid && c.Status != checkouts.Committed && c.Alert == "":
			s.TB.Errorf("%s was paid, and is %s without an alert", c.CartID, c.Status)
		case !of.paid && c.CallbackURL == "" && c.Status != checkouts.Compensated:
			s.TB.Errorf("%s was not paid, and is %s", c.CartID, c.Status)
		}
	}
	if n := s.Int(`SELECT count(*) FROM checkouts`); n != begun {
		s.TB.Errorf("%d checkouts, want %d", n, begun)
	}
	if n := s.Int(`SELECT count(*) FROM postings WHERE status = 'pending_inactive'`); n != 0 {
		s.TB.Errorf("%d units are pending", n)
	}
	if n := s.Int(`
		SELECT count(*)
		FROM (SELECT a.resource_key AS block, unit.id
		      FROM audit_log a, jsonb_array_elements_text(a.unit_ids) AS unit (id)
		      WHERE a.action = 'reservation.committed'
		      GROUP BY 1, 2
		      HAVING count(*) > 1) twice`); n != 0 {
		s.TB.Errorf("%d units were taken twice", n)
	}
	for _, status := range []checkouts.Status{checkouts.Committed, checkouts.Compensated, checkouts.Failed} {
		if endings[status] == 0 {
			s.TB.Errorf("no saga is %s: the test shows too little", status)
		}
	}
	s.sound()
	s.TB.Logf("%d sagas: %v", begun, endings)
}
