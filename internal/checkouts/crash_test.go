package checkouts_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/holdfast/holdfast/internal/checkouts"
	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/reservations"
)

// The steps at which a process is killed: before each message to the database,
// and after each COMMIT. A step of a list is what comes next.
var (
	beginSteps = []string{
		"begin: BEGIN", "begin: read the id and the pending requests", "begin: read the holds",
		"begin: lock the stocks and the holds", "begin: lock them to the checkout", "begin: insert the record", "begin: record the event",
		"begin: COMMIT", "begin: after the COMMIT",
	}
	answerSteps = []string{
		"paid: lock the checkout", "paid: lock the holds", "paid: keep them", "paid: record it", "paid: COMMIT", "paid: after the COMMIT",
	}
	finalizeSteps = []string{
		"finalize: lock the checkout", "finalize: read the holds", "finalize: lock the stocks", "finalize: lock the holds",
		"finalize: commit them", "finalize: record it", "finalize: COMMIT", "finalize: after the COMMIT",
	}
	compensateSteps = []string{
		"compensate: lock the checkout", "compensate: read the holds", "compensate: lock the stocks", "compensate: lock the holds",
		"compensate: release them", "compensate: record it", "compensate: COMMIT", "compensate: after the COMMIT",
	}
	recoverySteps = []string{"BEGIN", "set the lock timeout"}
)

// flow is a checkout from its beginning to its end.
type flow struct {
	name  string
	steps []string
	// begun is the number of steps before the moment from which the record
	// exists.
	begun int
	// run is what the process does that is killed.
	run func(s *fixture, id uuid.UUID)
	// again is what others do after it: the payment answers again, as it must
	// if it received no answer, and another process recovers.
	again  func(s *fixture, id uuid.UUID)
	status checkouts.Status
	hold   reservations.Status
}

var flows = []flow{
	{
		name: "validator",
		steps: join(beginSteps, []string{"claim"}, recoverySteps, answerSteps, recoverySteps, finalizeSteps,
			[]string{"claim the next"}),
		begun: len(beginSteps) - 1,
		run: func(s *fixture, id uuid.UUID) {
			s.beginAs(id, "https://pay.example")
			s.runOnce(paying(os.Getenv(crashCalls)))
		},
		again:  func(*fixture, uuid.UUID) {},
		status: checkouts.Committed, hold: reservations.Committed,
	},
	{
		name:  "paid",
		steps: join(beginSteps, []string{"paid: BEGIN"}, answerSteps, []string{"finalize: BEGIN", "finalize: bound the waits"}, finalizeSteps),
		begun: len(beginSteps) - 1,
		run: func(s *fixture, id uuid.UUID) {
			s.beginAs(id, "")
			_, err := s.answer(id, checkouts.ResultPaid)
			s.Must(err)
		},
		again:  func(s *fixture, id uuid.UUID) { s.repeat(id, checkouts.ResultPaid, checkouts.Committed) },
		status: checkouts.Committed, hold: reservations.Committed,
	},
	{
		name:  "failed",
		steps: join(beginSteps, []string{"compensate: BEGIN"}, compensateSteps),
		begun: len(beginSteps) - 1,
		run: func(s *fixture, id uuid.UUID) {
			s.beginAs(id, "")
			_, err := s.answer(id, checkouts.ResultFailed)
			s.Must(err)
		},
		again:  func(s *fixture, id uuid.UUID) { s.repeat(id, checkouts.ResultFailed, checkouts.Compensated) },
		status: checkouts.Compensated, hold: reservations.Released,
	},
	{
		name:  "deadline",
		steps: join([]string{"claim"}, recoverySteps, compensateSteps, []string{"claim the next"}),
		run:   func(s *fixture, _ uuid.UUID) { s.runOnce(nil) },
		again: func(*fixture, uuid.UUID) {}, status: checkouts.Compensated, hold: reservations.Released,
	},
}

func join(lists ...[]string) (all []string) {
	for _, list := range lists {
		all = append(all, list...)
	}
	return all
}

// beginAs begins the checkout of cart a with the id.
func (s *fixture) beginAs(id uuid.UUID, callbackURL string) {
	s.TB.Helper()
	start := s.start("a")
	start.CheckoutID, start.CallbackURL = id, callbackURL
	_, err := checkouts.Begin(s.TB.Context(), s.DB, start, s.config)
	s.Must(err)
}

// runOnce makes a pass on the shop's own pool, one checkout after the other.
func (s *fixture) runOnce(v checkouts.Validator) {
	s.TB.Helper()
	config := s.config
	config.Validator, config.Concurrency = v, 1
	r, err := checkouts.NewRecovery(s.DB, config)
	s.Must(err)
	_, err = r.RunOnce(s.TB.Context())
	s.Must(err)
}

// repeat answers again until there is an answer.
func (s *fixture) repeat(id uuid.UUID, result checkouts.Result, want checkouts.Status) {
	s.TB.Helper()
	c, err := s.answer(id, result)
	if conflict, ok := errors.AsType[*checkouts.ConflictError](err); ok && conflict.Raised == "" {
		err = nil
	}
	s.Must(err)
	if c.Status != want {
		s.TB.Errorf("answered again: %s, want %s", c.Status, want)
	}
}

// paying is a Validator that writes the key of each call to the file, before it
// returns that it is paid. If crashInCall is set, the process is killed instead.
func paying(file string) validator {
	return func(_ context.Context, c checkouts.Checkout) (checkouts.Result, error) {
		log, err := os.OpenFile(file, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
		if err != nil {
			return "", err
		}
		_, err = log.WriteString(c.CheckoutID.String() + "\n")
		if err := errors.Join(err, log.Close()); err != nil {
			return "", err
		}
		if os.Getenv(crashInCall) != "" {
			self, _ := os.FindProcess(os.Getpid())
			_ = self.Kill()
			select {}
		}
		return checkouts.ResultPaid, nil
	}
}

// The environment variables of the process that is killed.
const (
	crashFlow   = "CHECKOUTS_CRASH_FLOW"
	crashTenant = "CHECKOUTS_CRASH_TENANT"
	crashID     = "CHECKOUTS_CRASH_ID"
	crashCalls  = "CHECKOUTS_CRASH_CALLS"
	crashInCall = "CHECKOUTS_CRASH_IN_CALL"
)

// TestCrashProcess is the process that TestCrash kills.
func TestCrashProcess(t *testing.T) {
	db := pgtest.NewKilled(t)
	if db == nil {
		return
	}
	s := shopOn(t, db)
	s.tenant = uuid.MustParse(os.Getenv(crashTenant))
	for _, f := range flows {
		if f.name == os.Getenv(crashFlow) {
			f.run(s, uuid.MustParse(os.Getenv(crashID)))
		}
	}
}

// A process is killed (kill -9) before and after every step of a checkout.
// Another process ends the checkout right, and the validator is called with one
// key only.
func TestCrash(t *testing.T) {
	t.Parallel()
	for _, f := range flows {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			for n, step := range f.steps {
				t.Run(step, func(t *testing.T) { f.crash(shopOn(t, db), n+1, n >= f.begun, true) })
			}
			t.Run("no step is missing", func(t *testing.T) { f.crash(shopOn(t, db), len(f.steps)+1, true, false) })
		})
	}
}

func TestCrashInTheCall(t *testing.T) {
	t.Parallel()
	s := newFixture(t)
	flows[0].crash(s, 1000, true, true, crashInCall+"=1")
}

// crash kills the process before its nth step, and checks what others make of
// it. begun is whether the record exists then.
func (f *flow) crash(s *fixture, n int, begun, killed bool, env ...string) {
	s.TB.Helper()
	t, id := s.TB, uuid.Must(uuid.NewV7())
	s.seats("hall", 3)
	s.stock("shirt", 5)
	s.hold("a", "hall", 2)
	s.hold("a", "shirt", 4)
	if f.begun == 0 {
		s.beginAs(id, "")
		s.late(id)
		s.due()
	}
	file := filepath.Join(t.TempDir(), "calls")
	env = append(env, crashFlow+"="+f.name, crashTenant+"="+s.tenant.String(), crashID+"="+id.String(), crashCalls+"="+file)
	if got := pgtest.RunKilled(t, s.DB, "TestCrashProcess", n, env...); got != killed {
		t.Fatalf("killed: %t, want %t", got, killed)
	}
	s.sound()
	if !begun {
		if _, err := checkouts.Get(t.Context(), s.DB, s.tenant, id); !errors.Is(err, checkouts.ErrNotFound) {
			t.Fatalf("before it was begun: %v", err)
		}
		s.beginAs(id, "https://pay.example") // the caller received no answer, and repeats the call
	}
	f.again(s, id)
	s.recover(paying(file))
	s.recover(paying(file))
	s.wantCheckout(id, f.status, map[string]checkouts.Reason{"failed": checkouts.PaymentFailed, "deadline": checkouts.PaymentTimeout}[f.name], "")
	s.wantHolds(id, f.hold)
	sold := count(f.hold == reservations.Committed)
	s.wantStock("hall", 3-2*sold, 0)
	s.wantStock("shirt", 5-4*sold, 0)
	s.sound()
	keys, err := os.ReadFile(file)
	if f.name != "validator" && errors.Is(err, os.ErrNotExist) {
		return
	}
	s.Must(err)
	made := strings.Fields(string(keys))
	if len(made) < 1 || len(made) > 2 {
		t.Errorf("the validator was called %d times", len(made))
	}
	for _, key := range made {
		if key != id.String() {
			t.Errorf("the validator was called with the key %s, want %s", key, id)
		}
	}
}
