package verbs_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/internal/lanetest"
	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/inventory"
	"github.com/holdfast/holdfast/requests"
	"github.com/holdfast/holdfast/verbs"
)

// trial is a call that may be disturbed, and the holds that it changes.
type trial struct {
	verbs.Call
	ids []uuid.UUID
	// refused is what the call is answered that changes nothing, or only what is due.
	refused func(error) bool
}

// trialGroup is a GroupMax that makes two transactions of the trials: the first five but one, and the others with that one.
const trialGroup = 5

// A group of several variants has six steps: what begins and reads, what locks stocks, what locks holds, what writes,
// COMMIT, and the moment after.
const (
	groupSteps = 6
	trialSteps = 2 * groupSteps
)

// committedSteps are the moments at which the groups of the trials are committed.
var committedSteps = []int{groupSteps, trialSteps}

// together are the trials that are decided in one transaction.
var together = [][]int{{0, 1, 2, 3}, {5, 6, 7}}

// newTrials holds what the trials need.
func (s *shop) newTrials(name string) (ids []uuid.UUID) {
	s.t.Helper()
	ids = s.hold(line{name + "a", "shoe", 1}, line{name + "a", "boot", 2}, line{name + "b", "shoe", 3}, line{name + "c", "boot", 4},
		line{name + "d", "shoe", 5}, line{name + "e", "shoe", 6}, line{name + "f", "boot", 7}, line{name + "g", "boot", 8})
	s.lapse(ids[7])
	return ids
}

// trials are the calls about what newTrials holds.
func (s *shop) trials(name string, ids []uuid.UUID) []trial {
	return []trial{
		{Call: keyed(name+"checkout", s.checkout(name+"a")), ids: ids[:2]},
		{Call: s.checkout(name + "b"), ids: ids[2:3]},
		{Call: keyed(name+"release", s.release(ids[3])), ids: ids[3:4]},
		{Call: s.commit(ids[4]), ids: ids[4:5]},
		{Call: s.commit(ids[0]), refused: conflicts(committed)},
		{Call: keyed(name+"extend", s.extend(ids[5])), ids: ids[5:6]},
		{Call: s.extendCart(name + "f"), ids: ids[6:7]},
		{Call: s.release(ids[7]), ids: ids[7:8], refused: conflicts(expired)},
		{Call: s.checkout(name + "empty"), refused: is(inventory.ErrCartEmpty)},
	}
}

// outcome is what a caller received.
type outcome string

const (
	none    outcome = "none" // not answered
	done    outcome = "done"
	refusal outcome = "refused"
	apart   outcome = "alone"
	unknown outcome = "unknown"
)

func (c *trial) outcome(err error) outcome {
	switch {
	case err == nil && c.refused == nil:
		return done
	case errors.Is(err, verbs.ErrAlone):
		return apart
	case errors.Is(err, requests.ErrOutcomeUnknown):
		return unknown
	case c.refused != nil && c.refused(err):
		return refusal
	}
	return outcome(fmt.Sprint("wrong: ", err))
}

// attempt makes the trials in the line of a Groups on db, in their order, and reports each outcome.
func attempt(t *testing.T, db *pgxpool.Pool, config verbs.Config, trials []trial) []outcome {
	t.Helper()
	c := gather(t, db, config)
	for i := range trials {
		c.join(t.Context(), trials[i].Call)
	}
	outcomes := make([]outcome, len(trials))
	for i, a := range c.run() {
		outcomes[i] = trials[i].outcome(a.err)
	}
	return outcomes
}

// effect is how often the trial had its effect. It fails the test if that is a part of it, or more than one.
func (s *shop) effect(what string, c *trial) (times int64) {
	s.t.Helper()
	const effectSQL = `SELECT count(*) FROM audit_log WHERE tenant_id = $1 AND target_id = ANY ($2) AND action <> 'reservation.held'`
	n := s.Int(effectSQL, s.Tenant, c.ids)
	if n != 0 && n != int64(len(c.ids)) {
		s.t.Errorf("%s: %d audit rows of %d holds", what, n, len(c.ids))
	}
	times = min(n, 1)
	if c.Key == "" {
		return times
	}
	if kept := s.Int(`SELECT count(*) FROM idempotency_keys WHERE tenant_id = $1 AND idempotency_key = $2`, s.Tenant, c.Key); kept != times {
		s.t.Errorf("%s: the call had %d effects, and %d answers are kept", what, times, kept)
	}
	return times
}

// judge fails the test unless each call that was answered has its effect, each transaction is there or not, and each call
// has one effect once the callers have done what their answers ask for.
func (s *shop) judge(what string, trials []trial, outcomes []outcome) {
	s.t.Helper()
	s.Eventually("no transaction is open", func() bool {
		return s.Int(`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND xact_start IS NOT NULL AND pid <> pg_backend_pid()`) == 0
	})
	effects := make([]int64, len(trials))
	for i := range trials {
		c, what := &trials[i], fmt.Sprintf("%s: call %d, %s", what, i, outcomes[i])
		effects[i] = s.effect(what, c)
		switch outcomes[i] {
		case done, refusal:
			if c.ids != nil && effects[i] != 1 {
				s.t.Errorf("%s: it has no effect", what)
			}
		case apart:
			if c.Key == "" && effects[i] != 0 {
				s.t.Errorf("%s: it has an effect", what)
			}
		case none, unknown:
		default:
			s.t.Error(what)
		}
	}
	for _, group := range together {
		for _, i := range group {
			if effects[i] != effects[group[0]] {
				s.t.Errorf("%s: a part of the group was committed: %v", what, effects)
			}
		}
	}
	for i := range trials {
		s.again(fmt.Sprintf("%s: call %d", what, i), &trials[i], outcomes[i], effects[i])
	}
	s.sound()
}

// again does what the caller of a trial does: it makes the call alone, or again if it may or has to. There is one effect.
func (s *shop) again(what string, c *trial, received outcome, effect int64) {
	s.t.Helper()
	repeats := c.Key != "" || received == apart || (received == none || received == unknown) && effect == 0
	if !repeats {
		return
	}
	r, err := s.alone(c.Call)
	if o := c.outcome(err); o != done && o != refusal {
		s.t.Errorf("%s: made alone, %s", what, o)
	}
	if c.Key != "" && (r.Kept != nil) != (effect == 1) {
		s.t.Errorf("%s: made alone, it is replayed: %t", what, r.Kept != nil)
	}
	if c.refused == nil && s.effect(what, c) != 1 {
		s.t.Errorf("%s: made alone, it has no effect", what)
	}
}

// newTrialShop is a shop that has what trials hold.
func newTrialShop(t *testing.T) *shop {
	t.Helper()
	s := newShop(t)
	s.Stock("shoe", 100_000)
	s.Stock("boot", 100_000)
	return s
}

// The session of a group ends between any two of its steps: its calls are made alone, and those of other groups are committed.
func TestSessionOfGroupEnds(t *testing.T) {
	t.Parallel()
	s := newTrialShop(t)
	for last := 1; ; last++ {
		name := fmt.Sprintf("%d-", last)
		trials := s.trials(name, s.newTrials(name))
		db, ended := pgtest.NewEnded(t, s.DB, last)
		outcomes := attempt(t, db, verbs.Config{GroupMax: trialGroup}, trials)
		disturbed := 0
		for _, o := range outcomes {
			if o == apart {
				disturbed++
			}
		}
		after := slices.Contains(committedSteps, last) // the next group finds the session ended
		if disturbed > trialGroup || disturbed > 0 && !ended.Load() || disturbed == 0 && ended.Load() && !after {
			t.Errorf("ended ahead of step %d: %v", last, outcomes)
		}
		s.judge(fmt.Sprint("ended ahead of step ", last), trials, outcomes)
		if !ended.Load() || t.Failed() {
			if last <= trialSteps {
				t.Errorf("the groups have %d steps", last-1)
			}
			return
		}
	}
}

// The variables of the process that TestGroupIsKilled kills: what its trials are, and the file that it notes its answers in.
const (
	dieTenant  = "VERBS_TEST_TENANT"
	dieName    = "VERBS_TEST_NAME"
	dieIDs     = "VERBS_TEST_IDS"
	dieAnswers = "VERBS_TEST_ANSWERS"
)

// TestGroupProcess is the process that TestGroupIsKilled kills; alone it does nothing.
func TestGroupProcess(t *testing.T) { //nolint:paralleltest // a program of its own
	db := pgtest.NewKilled(t)
	if db == nil {
		return
	}
	s := &shop{t: t, Bench: &lanetest.Bench{TB: t, Tenant: uuid.MustParse(os.Getenv(dieTenant))}}
	var ids []uuid.UUID
	for text := range strings.SplitSeq(os.Getenv(dieIDs), ",") {
		ids = append(ids, uuid.MustParse(text))
	}
	answers, err := os.OpenFile(os.Getenv(dieAnswers), os.O_WRONLY|os.O_APPEND, 0)
	s.must(err)
	c := gather(t, db, verbs.Config{GroupMax: trialGroup})
	trials := s.trials(os.Getenv(dieName), ids)
	for i := range trials {
		before := c.groups.Waiting()
		c.waiting.Go(func() {
			_, err := c.groups.Do(t.Context(), trials[i].Call)
			_, _ = fmt.Fprintln(answers, i, trials[i].outcome(err)) // one write
		})
		eventually(t, "the call is in the line", func() bool { return c.groups.Waiting() > before })
	}
	c.run()
}

// A process is killed with kill -9 between any two steps of its groups. What it has answered is there, each group is there
// or not, and the calls made again have one effect.
func TestGroupIsKilled(t *testing.T) {
	t.Parallel()
	s := newTrialShop(t)
	answeredBefore := false
	for last := 1; ; last++ {
		name := fmt.Sprintf("%d-", last)
		ids := s.newTrials(name)
		answers := filepath.Join(t.TempDir(), "answers")
		s.must(os.WriteFile(answers, nil, 0o600))
		killed := pgtest.RunKilled(t, s.DB, "TestGroupProcess", last,
			dieTenant+"="+s.Tenant.String(), dieName+"="+name, dieIDs+"="+join(ids), dieAnswers+"="+answers)
		trials := s.trials(name, ids)
		outcomes := s.noted(answers, len(trials))
		answeredBefore = answeredBefore || killed && outcomes[0] == done
		s.judge(fmt.Sprint("killed ahead of step ", last), trials, outcomes)
		if killed && !t.Failed() {
			continue
		}
		if last <= trialSteps || !answeredBefore {
			t.Errorf("the groups have %d steps; a call was answered before a kill: %t", last-1, answeredBefore)
		}
		if !killed && slices.Contains(outcomes, none) {
			t.Errorf("what was not disturbed is %v", outcomes)
		}
		return
	}
}

// noted reads the outcomes that a process noted of n calls.
func (s *shop) noted(file string, n int) []outcome {
	s.t.Helper()
	text, err := os.ReadFile(file)
	s.must(err)
	outcomes := slices.Repeat([]outcome{none}, n)
	for l := range strings.Lines(string(text)) {
		var i int
		var o outcome
		if _, err := fmt.Sscan(l, &i, &o); err != nil {
			s.t.Fatalf("the process noted %q: %v", l, err)
		}
		outcomes[i] = o
	}
	return outcomes
}

func join(ids []uuid.UUID) string {
	texts := make([]string, len(ids))
	for i, id := range ids {
		texts[i] = id.String()
	}
	return strings.Join(texts, ",")
}

// The connection breaks at each thing that is sent: before the server has it, or once the server has it, so that its answer
// is lost. A call without a key whose commit is not answered has an unknown outcome; any other is made alone.
func TestConnectionOfGroupBreaks(t *testing.T) {
	t.Parallel()
	for name, breakAt := range map[string]func(*pgtest.Wire, int){
		"before it is sent": (*pgtest.Wire).CutAt, "before it is answered": (*pgtest.Wire).LoseAt,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newTrialShop(t)
			wire := pgtest.NewWire(t, s.DB.Config().ConnString())
			lost := 0 // groups whose commit took effect and was not answered
			for piece := 1; ; piece++ {
				config, err := pgxpool.ParseConfig(wire.URL)
				s.must(err)
				config.MaxConns = 1
				db := s.open(config)
				s.must(db.Ping(t.Context()))
				carts := fmt.Sprintf("%d-", piece)
				trials := s.trials(carts, s.newTrials(carts))
				breakAt(wire, piece)
				outcomes := attempt(t, db, verbs.Config{}, trials)
				broke := wire.Sent() >= piece
				db.Close()
				if outcomes[1] == unknown && s.Int(`SELECT count(*) FROM reservations WHERE status = 'held' AND reservation_id = ANY ($1)`, trials[1].ids) == 0 {
					lost++
				}
				s.judge(fmt.Sprint("piece ", piece), trials, outcomes)
				if broke && !t.Failed() {
					continue
				}
				if piece <= groupSteps-1 || (lost > 0) != (name == "before it is answered") {
					t.Errorf("%d pieces are sent; %d commits took effect and were not answered", piece-1, lost)
				}
				if slices.Contains(outcomes, apart) || slices.Contains(outcomes, unknown) {
					t.Errorf("what was not disturbed is %v", outcomes)
				}
				return
			}
		})
	}
}

// behind returns a pool whose connections go through a wire.
func (s *shop) behind() (*pgtest.Wire, *pgxpool.Pool) {
	s.t.Helper()
	wire := pgtest.NewWire(s.t, s.DB.Config().ConnString())
	config, err := pgxpool.ParseConfig(wire.URL)
	s.must(err)
	db := s.open(config)
	s.t.Cleanup(wire.CutAll)
	return wire, db
}

// The answer to a commit is swallowed. The outcome is unknown for the calls that were in the transaction and have no key; the
// others are made alone.
func TestSwallowedCommit(t *testing.T) {
	t.Parallel()
	s := newTrialShop(t)
	ids := s.hold(line{"a", "shoe", 1}, line{"b", "shoe", 1}, line{"c", "shoe", 1})
	s.SubmitQueued(requests.Submission{CartID: "c", VariantID: "shoe", Quantity: 1})
	wire, db := s.behind()
	c := gather(t, db, verbs.Config{AttemptTimeout: time.Minute})
	c.join(t.Context(), keyed("key", s.checkout("a")), s.checkout("b"), s.remove("c", ""), s.release(ids[0]))
	swallowed := wire.SilenceAfter("commit\x00", 1)
	stop := start(c.groups)
	<-swallowed
	s.becomes(committed, ids[0])
	wire.CutAll()
	c.waiting.Wait()
	stop()
	for i, want := range []error{verbs.ErrAlone, requests.ErrOutcomeUnknown, verbs.ErrAlone, verbs.ErrAlone} {
		if err := c.answers[i].err; !errors.Is(err, want) {
			t.Errorf("call %d returned %v, want %v", i, err, want)
		}
	}
	s.is(committed, ids[:2]...)
	s.is(held, ids[2])
	again, err := s.alone(keyed("key", s.checkout("a")))
	if err != nil || again.Kept == nil {
		t.Errorf("made alone, the call under a key returned %+v, %v", again, err)
	}
	s.sound()
}

// The answer to a rollback is swallowed: the group's time bounds that too, and its calls are made alone.
func TestSwallowedRollback(t *testing.T) {
	t.Parallel()
	s := newTrialShop(t)
	ids := s.hold(line{"a", "shoe", 1}, line{"bad", "shoe", 1}, line{"c", "shoe", 1})
	s.Exec(`ALTER TABLE reservations ADD CONSTRAINT refused CHECK (holder_id <> 'bad' OR status = 'held')`)
	wire, db := s.behind()
	wire.SilenceAfter("rollback\x00", 1)
	c := gather(t, db, verbs.Config{AttemptTimeout: 300 * time.Millisecond})
	patience, end := context.WithTimeout(t.Context(), 10*time.Second)
	defer end()
	c.join(patience, s.checkout("a"), s.checkout("bad"), s.checkout("c"))
	stop := start(c.groups)
	c.waiting.Wait()
	for i, a := range c.answers {
		if !errors.Is(a.err, verbs.ErrAlone) {
			t.Errorf("call %d returned %v", i, a.err)
		}
	}
	wire.CutAll()
	stop()
	s.is(held, ids...)
	s.sound()
}

// While one group waits for a database that is silent, the next one is committed on another connection.
func TestSilenceOfOneGroup(t *testing.T) {
	t.Parallel()
	s := newTrialShop(t)
	ids := s.hold(line{"a", "shoe", 1}, line{"b", "boot", 1})
	wire, db := s.behind()
	swallowed := wire.SilenceAfter("commit\x00", 1)
	groups, err := verbs.New(db, verbs.Config{AttemptTimeout: time.Minute})
	s.must(err)
	stop := start(groups)
	defer stop()
	first := make(chan error, 1)
	go func() {
		_, err := groups.Do(t.Context(), s.checkout("a"))
		first <- err
	}()
	<-swallowed
	_, err = groups.Do(t.Context(), s.checkout("b"))
	s.must(err)
	if len(first) > 0 {
		t.Fatalf("the first group is answered: %v", <-first)
	}
	s.becomes(committed, ids[0])
	wire.CutAll()
	if err := <-first; !errors.Is(err, requests.ErrOutcomeUnknown) {
		t.Errorf("the first call returned %v", err)
	}
	s.is(committed, ids...)
}

// A caller whose context ends while its group is being committed receives that the outcome is unknown, at once.
func TestCallerLeavesDuringCommit(t *testing.T) {
	t.Parallel()
	s := newTrialShop(t)
	id := s.hold(line{"a", "shoe", 1})[0]
	wire, db := s.behind()
	swallowed := wire.SilenceAfter("commit\x00", 1)
	c := gather(t, db, verbs.Config{AttemptTimeout: time.Minute})
	ctx, leave := context.WithCancel(t.Context())
	c.join(ctx, s.checkout("a"))
	stop := start(c.groups)
	<-swallowed
	leave()
	c.waiting.Wait()
	if err := c.answers[0].err; !errors.Is(err, requests.ErrOutcomeUnknown) || !errors.Is(err, context.Canceled) {
		t.Errorf("the caller received %v", err)
	}
	s.becomes(committed, id)
	wire.CutAll()
	stop()
}

// What a silent database has not committed within StopTimeout of the end is given up: all callers are answered, Run returns,
// and nothing was done.
func TestStopGivesUp(t *testing.T) {
	t.Parallel()
	s := newTrialShop(t)
	ids := s.hold(line{"a", "shoe", 1}, line{"b", "shoe", 1}, line{"c", "shoe", 1})
	wire, db := s.behind()
	c := gather(t, db, verbs.Config{GroupMax: 1, AttemptTimeout: time.Minute, StopTimeout: 50 * time.Millisecond})
	c.join(t.Context(), s.checkout("a"), s.checkout("b"), s.checkout("c"))
	wire.Silence()
	ctx, stop := context.WithCancel(t.Context())
	stop()
	s.must(c.groups.Run(ctx))
	c.waiting.Wait()
	for i, a := range c.answers {
		if !errors.Is(a.err, verbs.ErrAlone) {
			t.Errorf("call %d returned %v", i, a.err)
		}
	}
	s.is(held, ids...)
}
