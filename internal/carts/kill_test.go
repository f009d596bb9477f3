package carts_test

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

	"github.com/holdfast/holdfast/internal/admission"
	"github.com/holdfast/holdfast/internal/carts"
	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/internal/requestrows"
	"github.com/holdfast/holdfast/internal/testkit"
)

// trial is a call that may be interrupted, and the holds that it changes.
type trial struct {
	carts.Call
	ids []uuid.UUID
	// refused is the error of a call that changes nothing, or only due holds.
	refused func(error) bool
}

// trialGroup is a GroupMax that splits the trials into two transactions: four
// of the first five, and the others with the fifth.
const trialGroup = 5

// A group of several variants has six steps: begin and read, lock stocks, lock
// holds, write, COMMIT, and the moment after.
const (
	groupSteps = 6
	trialSteps = 2 * groupSteps
)

// committedSteps are the steps after which the groups of the trials are
// committed.
var committedSteps = []int{groupSteps, trialSteps}

// together are the trials that are decided in one transaction.
var together = [][]int{{0, 1, 2, 3}, {5, 6, 7}}

// newTrials makes the holds that the trials need.
func (s *shop) newTrials(name string) (ids []uuid.UUID) {
	s.t.Helper()
	ids = s.hold(item{name + "a", "shoe", 1}, item{name + "a", "boot", 2}, item{name + "b", "shoe", 3}, item{name + "c", "boot", 4},
		item{name + "d", "shoe", 5}, item{name + "e", "shoe", 6}, item{name + "f", "boot", 7}, item{name + "g", "boot", 8})
	s.lapse(ids[7])
	return ids
}

// trials are the calls on the holds of newTrials.
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

// outcome is the answer to a caller.
type outcome string

const (
	none    outcome = "none" // not answered
	done    outcome = "done"
	refusal outcome = "refused"
	apart   outcome = "not grouped"
	unknown outcome = "unknown"
)

func (c *trial) outcome(err error) outcome {
	switch {
	case err == nil && c.refused == nil:
		return done
	case errors.Is(err, carts.ErrNotGrouped):
		return apart
	case errors.Is(err, admission.ErrOutcomeUnknown):
		return unknown
	case c.refused != nil && c.refused(err):
		return refusal
	}
	return outcome(fmt.Sprint("wrong: ", err))
}

// attempt queues the trials in a Groups on db, in their order, and reports each
// outcome.
func attempt(t *testing.T, db *pgxpool.Pool, config carts.Config, trials []trial) []outcome {
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

// effect returns how often the trial had its effect. It fails the test if the
// trial had only a part of it, or had it more than once.
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
	if stored := s.Int(`SELECT count(*) FROM idempotency_keys WHERE tenant_id = $1 AND idempotency_key = $2`, s.Tenant, c.Key); stored != times {
		s.t.Errorf("%s: the call had %d effects, and %d answers are stored", what, times, stored)
	}
	return times
}

// checkTrials fails the test unless each answered call has its effect, each
// transaction is complete or absent, and each call has one effect once the
// callers have repeated their calls as the answers require.
func (s *shop) checkTrials(what string, trials []trial, outcomes []outcome) {
	s.t.Helper()
	s.Until("no transaction is open", func() bool {
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

// again repeats a trial as its caller does, with a single call, if the answer
// allows or requires that. There is one effect.
func (s *shop) again(what string, c *trial, received outcome, effect int64) {
	s.t.Helper()
	repeats := c.Key != "" || received == apart || (received == none || received == unknown) && effect == 0
	if !repeats {
		return
	}
	r, err := s.single(c.Call)
	if o := c.outcome(err); o != done && o != refusal {
		s.t.Errorf("%s: made as a single call, %s", what, o)
	}
	if c.Key != "" && (r.Replayed != nil) != (effect == 1) {
		s.t.Errorf("%s: made as a single call, it is replayed: %t", what, r.Replayed != nil)
	}
	if c.refused == nil && s.effect(what, c) != 1 {
		s.t.Errorf("%s: made as a single call, it has no effect", what)
	}
}

// newTrialShop returns a shop with the stocks of the trials.
func newTrialShop(t *testing.T) *shop {
	t.Helper()
	s := newShop(t)
	s.Stock("shoe", 100_000)
	s.Stock("boot", 100_000)
	return s
}

// The session of a group ends between any two of its steps. Its calls are not
// grouped, and those of other groups are committed.
func TestSessionOfGroupEnds(t *testing.T) {
	t.Parallel()
	s := newTrialShop(t)
	for last := 1; ; last++ {
		name := fmt.Sprintf("%d-", last)
		trials := s.trials(name, s.newTrials(name))
		db, ended := pgtest.NewEnded(t, s.DB, last)
		outcomes := attempt(t, db, carts.Config{GroupMax: trialGroup}, trials)
		disturbed := 0
		for _, o := range outcomes {
			if o == apart {
				disturbed++
			}
		}
		after := slices.Contains(committedSteps, last) // the next group finds a session that has ended
		if disturbed > trialGroup || disturbed > 0 && !ended.Load() || disturbed == 0 && ended.Load() && !after {
			t.Errorf("ended ahead of step %d: %v", last, outcomes)
		}
		s.checkTrials(fmt.Sprint("ended ahead of step ", last), trials, outcomes)
		if !ended.Load() || t.Failed() {
			if last <= trialSteps {
				t.Errorf("the groups have %d steps", last-1)
			}
			return
		}
	}
}

// The environment variables of the process that TestGroupIsKilled kills: its
// trials, and the file to which it writes its answers.
const (
	dieTenant  = "VERBS_TEST_TENANT"
	dieName    = "VERBS_TEST_NAME"
	dieIDs     = "VERBS_TEST_IDS"
	dieAnswers = "VERBS_TEST_ANSWERS"
)

// TestGroupProcess is the process that TestGroupIsKilled kills. Run alone, it
// does nothing.
func TestGroupProcess(t *testing.T) { //nolint:paralleltest // runs in a separate process
	db := pgtest.NewKilled(t)
	if db == nil {
		return
	}
	s := &shop{t: t, Fixture: &testkit.Fixture{Fixture: pgtest.Fixture{TB: t}, Tenant: uuid.MustParse(os.Getenv(dieTenant))}}
	var ids []uuid.UUID
	for text := range strings.SplitSeq(os.Getenv(dieIDs), ",") {
		ids = append(ids, uuid.MustParse(text))
	}
	answers, err := os.OpenFile(os.Getenv(dieAnswers), os.O_WRONLY|os.O_APPEND, 0)
	s.must(err)
	c := gather(t, db, carts.Config{GroupMax: trialGroup})
	trials := s.trials(os.Getenv(dieName), ids)
	for i := range trials {
		before := c.groups.Waiting()
		c.waiting.Go(func() {
			_, err := c.groups.Do(t.Context(), trials[i].Call)
			_, _ = fmt.Fprintln(answers, i, trials[i].outcome(err)) // in one write
		})
		pgtest.Until(t, "the call is queued", func() bool { return c.groups.Waiting() > before })
	}
	c.run()
}

// A process is killed with kill -9 between any two steps of its groups. The
// effects that it has answered are committed, each group is complete or absent,
// and repeated calls have one effect.
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
		outcomes := s.recordedOutcomes(answers, len(trials))
		answeredBefore = answeredBefore || killed && outcomes[0] == done
		s.checkTrials(fmt.Sprint("killed ahead of step ", last), trials, outcomes)
		if killed && !t.Failed() {
			continue
		}
		if last <= trialSteps || !answeredBefore {
			t.Errorf("the groups have %d steps; a call was answered before a kill: %t", last-1, answeredBefore)
		}
		if !killed && slices.Contains(outcomes, none) {
			t.Errorf("without a fault it is %v", outcomes)
		}
		return
	}
}

// recordedOutcomes reads the outcomes of n calls that a process has written.
func (s *shop) recordedOutcomes(file string, n int) []outcome {
	s.t.Helper()
	text, err := os.ReadFile(file)
	s.must(err)
	outcomes := slices.Repeat([]outcome{none}, n)
	for l := range strings.Lines(string(text)) {
		var i int
		var o outcome
		if _, err := fmt.Sscan(l, &i, &o); err != nil {
			s.t.Fatalf("the process recorded %q: %v", l, err)
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

// The connection breaks at each message: before the server has received it, or
// after that, so that the answer is lost. A call without a key whose commit is
// not answered has an unknown outcome. Any other call is not grouped.
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
			for try, piece := 1, 1; ; try, piece = try+1, piece+1 {
				config, err := pgxpool.ParseConfig(wire.URL)
				s.must(err)
				config.MaxConns = 1
				db := s.open(config)
				s.must(db.Ping(t.Context()))
				prefix := fmt.Sprintf("%d-", try)
				trials := s.trials(prefix, s.newTrials(prefix))
				breakAt(wire, piece)
				outcomes := attempt(t, db, carts.Config{}, trials)
				sent := wire.Sent()
				broke := sent >= piece
				db.Close()
				if outcomes[1] == unknown && s.Int(`SELECT count(*) FROM reservations WHERE status = 'held' AND reservation_id = ANY ($1)`, trials[1].ids) == 0 {
					lost++
				}
				s.checkTrials(fmt.Sprint("piece ", piece), trials, outcomes)
				if broke && !t.Failed() {
					continue
				}
				// A group that waits for a lock sends an extra piece, so the loop
				// can pass COMMIT, which is the last piece, without a break.
				if name == "before it is answered" && lost == 0 && try < 50 && !t.Failed() {
					piece = sent - 1
					continue
				}
				if piece <= groupSteps-1 || (lost > 0) != (name == "before it is answered") {
					t.Errorf("%d pieces are sent; %d commits took effect and were not answered", piece-1, lost)
				}
				if slices.Contains(outcomes, apart) || slices.Contains(outcomes, unknown) {
					t.Errorf("without a fault it is %v", outcomes)
				}
				return
			}
		})
	}
}

// behind returns a pool whose connections use a proxy.
func (s *shop) behind() (*pgtest.Wire, *pgxpool.Pool) {
	s.t.Helper()
	wire := pgtest.NewWire(s.t, s.DB.Config().ConnString())
	config, err := pgxpool.ParseConfig(wire.URL)
	s.must(err)
	db := s.open(config)
	s.t.Cleanup(wire.CutAll)
	return wire, db
}

// The answer to a COMMIT is lost. The outcome is unknown for the calls in the
// transaction that have no key. The others are not grouped.
func TestSwallowedCommit(t *testing.T) {
	t.Parallel()
	s := newTrialShop(t)
	ids := s.hold(item{"a", "shoe", 1}, item{"b", "shoe", 1}, item{"c", "shoe", 1})
	s.SubmitAs(requestrows.Submission{CartID: "c", VariantID: "shoe", Quantity: 1})
	wire, db := s.behind()
	c := gather(t, db, carts.Config{AttemptTimeout: time.Minute})
	c.join(t.Context(), keyed("key", s.checkout("a")), s.checkout("b"), s.remove("c", ""), s.release(ids[0]))
	swallowed := wire.SilenceAfter("commit\x00", 1)
	stop := startGroups(c.groups)
	<-swallowed
	s.becomes(committed, ids[0])
	wire.CutAll()
	c.waiting.Wait()
	stop()
	for i, want := range []error{carts.ErrNotGrouped, admission.ErrOutcomeUnknown, carts.ErrNotGrouped, carts.ErrNotGrouped} {
		if err := c.answers[i].err; !errors.Is(err, want) {
			t.Errorf("call %d returned %v, want %v", i, err, want)
		}
	}
	s.is(committed, ids[:2]...)
	s.is(held, ids[2])
	again, err := s.single(keyed("key", s.checkout("a")))
	if err != nil || again.Replayed == nil {
		t.Errorf("made as a single call, the call under a key returned %+v, %v", again, err)
	}
	s.sound()
}

// The answer to a ROLLBACK is lost. The group's timeout bounds the rollback
// too, and its calls are not grouped.
func TestSwallowedRollback(t *testing.T) {
	t.Parallel()
	s := newTrialShop(t)
	ids := s.hold(item{"a", "shoe", 1}, item{"bad", "shoe", 1}, item{"c", "shoe", 1})
	s.Exec(`ALTER TABLE reservations ADD CONSTRAINT refused CHECK (holder_id <> 'bad' OR status = 'held')`)
	wire, db := s.behind()
	wire.SilenceAfter("rollback\x00", 1)
	c := gather(t, db, carts.Config{AttemptTimeout: 300 * time.Millisecond})
	patience, end := context.WithTimeout(t.Context(), 5*time.Minute)
	defer end()
	c.join(patience, s.checkout("a"), s.checkout("bad"), s.checkout("c"))
	stop := startGroups(c.groups)
	c.waiting.Wait()
	for i, a := range c.answers {
		if !errors.Is(a.err, carts.ErrNotGrouped) {
			t.Errorf("call %d returned %v", i, a.err)
		}
	}
	wire.CutAll()
	stop()
	s.is(held, ids...)
	s.sound()
}

// While one group waits for a silent database, the next one is committed on
// another connection.
func TestSilenceOfOneGroup(t *testing.T) {
	t.Parallel()
	s := newTrialShop(t)
	ids := s.hold(item{"a", "shoe", 1}, item{"b", "boot", 1})
	wire, db := s.behind()
	swallowed := wire.SilenceAfter("commit\x00", 1)
	groups, err := carts.New(db, carts.Config{AttemptTimeout: time.Minute})
	s.must(err)
	stop := startGroups(groups)
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
	if err := <-first; !errors.Is(err, admission.ErrOutcomeUnknown) {
		t.Errorf("the first call returned %v", err)
	}
	s.is(committed, ids...)
}

// A caller whose context ends while its group is being committed receives
// ErrOutcomeUnknown at once.
func TestCallerLeavesDuringCommit(t *testing.T) {
	t.Parallel()
	s := newTrialShop(t)
	id := s.hold(item{"a", "shoe", 1})[0]
	wire, db := s.behind()
	swallowed := wire.SilenceAfter("commit\x00", 1)
	c := gather(t, db, carts.Config{AttemptTimeout: time.Minute})
	ctx, leave := context.WithCancel(t.Context())
	c.join(ctx, s.checkout("a"))
	stop := startGroups(c.groups)
	<-swallowed
	leave()
	c.waiting.Wait()
	if err := c.answers[0].err; !errors.Is(err, admission.ErrOutcomeUnknown) || !errors.Is(err, context.Canceled) {
		t.Errorf("the caller received %v", err)
	}
	s.becomes(committed, id)
	wire.CutAll()
	stop()
}

// Run abandons the calls that a silent database has not committed within
// StopTimeout after the end. All callers are answered, Run returns, and the
// calls have no effect.
func TestStopGivesUp(t *testing.T) {
	t.Parallel()
	s := newTrialShop(t)
	ids := s.hold(item{"a", "shoe", 1}, item{"b", "shoe", 1}, item{"c", "shoe", 1})
	wire, db := s.behind()
	c := gather(t, db, carts.Config{GroupMax: 1, AttemptTimeout: time.Minute, StopTimeout: 50 * time.Millisecond})
	c.join(t.Context(), s.checkout("a"), s.checkout("b"), s.checkout("c"))
	wire.Silence()
	ctx, stop := context.WithCancel(t.Context())
	stop()
	s.must(c.groups.Run(ctx))
	c.waiting.Wait()
	for i, a := range c.answers {
		if !errors.Is(a.err, carts.ErrNotGrouped) {
			t.Errorf("call %d returned %v", i, a.err)
		}
	}
	s.is(held, ids...)
}
