package admission

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/internal/groupcommit"
	"github.com/holdfast/holdfast/internal/lanes"
	"github.com/holdfast/holdfast/internal/queues"
	"github.com/holdfast/holdfast/internal/requestrows"
	"github.com/holdfast/holdfast/internal/telemetry"
	"github.com/holdfast/holdfast/internal/tokens"
	"github.com/holdfast/holdfast/ratelimit"
	"github.com/holdfast/holdfast/requests"
)

// Intake admits requests in groups. While one group's transaction commits, the
// next one gathers. No caller waits for a timer, and a lone request is a group
// of one. A commit that takes unusually long delays its own group, and the next
// one for a moment, but not those behind it.
type Intake struct {
	db     *pgxpool.Pool
	wakes  *wakeDebouncer
	config IntakeConfig

	engine  *groupcommit.Engine[*waiter]
	waiting map[lanes.Lane]*groupcommit.Queue[*waiter] // by lane, so that callers of a hot variant delay no others
	replays *groupcommit.Queue[*waiter]                // refused callers whose keys may be known
	shedder *shedder
	keys    *groupcommit.LockedSet[requestrows.Key]
	rates   *rateCache
}

// lockedKeysMax is how many keys are remembered as locked by other
// transactions.
const lockedKeysMax = 1000

// NewIntake returns an intake. Run starts it.
func NewIntake(db *pgxpool.Pool, inserter *queues.WakeInserter, config IntakeConfig) (*Intake, error) {
	config, err := config.withDefaults()
	if err != nil {
		return nil, err
	}
	in := &Intake{
		db: db, wakes: newWakeDebouncer(inserter), config: config, shedder: newShedder(config),
		engine:  groupcommit.New[*waiter](config.GroupMax, config.StopTimeout),
		waiting: make(map[lanes.Lane]*groupcommit.Queue[*waiter]),
		keys:    groupcommit.NewLockedSet[requestrows.Key](lockedKeysMax), rates: newRateCache(),
	}
	for _, lane := range lanes.All() {
		in.waiting[lane] = in.engine.Queue(groupcommit.QueueConfig[*waiter]{
			Limit: config.QueueMax, Committers: config.Committers, Commit: in.commitOrBisect,
		})
	}
	in.replays = in.engine.Queue(groupcommit.QueueConfig[*waiter]{
		Limit: replayLookupMax, Committers: 1, Commit: in.lookUpReplays, Serial: true,
	})
	return in, nil
}

// Submit admits one request and returns it as stored: queued, or finished if
// the variant is untracked or the intake's Decider decided the request. If the
// idempotency key was used before for the same call, Submit returns that first
// request in its current state.
//
// Errors: *inventory.InvalidError, *RefusedError, ErrKeyReused. If ctx ends
// first, Submit returns ctx's error. That error is also ErrOutcomeUnknown if
// the request may have been admitted. If the deadline passes before the request
// is sent to the database, Submit returns a *RefusedError instead. After any
// other error it is unknown whether the request was admitted; calling again
// with the same key is safe.
func (in *Intake) Submit(ctx context.Context, s requestrows.Submission) (requests.Request, error) {
	if err := s.Prepare(ctx); err != nil {
		return requests.Request{}, err
	}
	v, err := in.submit(ctx, newWaiter(ctx, s))
	return v.Request, err
}

// submit queues w for admission and waits for its answer.
func (in *Intake) submit(ctx context.Context, w *waiter) (requests.View, error) {
	if refused := in.enter(w); refused != nil {
		return in.refuse(ctx, w, refused)
	}
	v, err := w.Wait()
	switch {
	case errors.Is(err, groupcommit.ErrLeft):
		err = w.leaveError()
		count(ctx, err)
	case errors.Is(err, groupcommit.ErrSent):
		err = fmt.Errorf("admit request %s: %w: %w", w.submission.RequestID, ErrOutcomeUnknown, ctx.Err())
	}
	return v, err
}

// Run commits groups until ctx ends. Then it closes the queues, commits the
// callers that are in them, inserts the last wakes and returns. It cancels the
// groups that are not committed within StopTimeout of the end; their outcome is
// unknown.
func (in *Intake) Run(ctx context.Context) error {
	ended := make(chan struct{})
	var reading, waking sync.WaitGroup
	reading.Go(func() { in.shedder.run(ctx) })
	waking.Go(func() { in.wakes.run(context.WithoutCancel(ctx), ended) })
	in.engine.Run(ctx)
	reading.Wait()
	close(ended)
	waking.Wait()
	return nil
}

// SubmitTx admits one request in the caller's transaction. When that commits,
// the request is queued and its lane is woken. Ordinary callers want
// Intake.Submit, which shares a transaction with other callers and refuses a
// request that would wait too long. SubmitTx refuses no request, counts no rate
// and requires no admission token.
//
// The other errors are those of Submit. After any of them the caller rolls
// back, because the row may be inserted already.
//
// The transaction must be READ COMMITTED, else ErrIsolation: a transaction with
// an older snapshot would queue the request in a stream that no lane reads any
// more, or miss the first use of its idempotency key.
func SubmitTx(ctx context.Context, tx pgx.Tx, inserter *queues.WakeInserter, s requestrows.Submission) (requests.Request, error) {
	if err := s.Prepare(ctx); err != nil {
		return requests.Request{}, err
	}
	inserted, err := requestrows.Insertion{Group: []requestrows.Submission{s}}.InsertTx(ctx, tx)
	if err != nil {
		return requests.Request{}, fmt.Errorf("admit request %s: %w", s.RequestID, err)
	}
	if n := len(inserted.Streams); n > 0 {
		if err := inserter.InsertTx(ctx, tx, inserted.Streams); err != nil {
			return requests.Request{}, fmt.Errorf("admit request %s: insert wakes for %d slots: %w", s.RequestID, n, err)
		}
	}
	a := inserted.Results[s.Ref()]
	return a.View.Request, a.Err
}

// observe counts a committed group, and its requests except those that had been
// admitted before.
func observe(ctx context.Context, group []*waiter, admitted map[requestrows.Ref]requestrows.Result) {
	telemetry.AdmittedGroup(ctx, len(group))
	counts := make(map[lanes.Lane]int)
	for _, w := range group {
		a := admitted[w.submission.Ref()]
		if a.Err == nil && a.View.RequestID == w.submission.RequestID {
			counts[a.View.Lane]++
		}
	}
	for lane, n := range counts {
		telemetry.Admitted(ctx, string(lane), n)
	}
}

// waiter is one caller in the admission queue.
type waiter struct {
	groupcommit.Call[requests.View]
	submission requestrows.Submission
	unknown    error      // of the last attempt whose outcome is unknown
	lane       lanes.Lane // of the stream that will decide it, by the last load
	item       ratelimit.Item
	token      tokens.Presented
	rates      []ratelimit.Rate  // in which the item is counted
	hasToken   bool              // it presents an admission token
	retried    bool              // it was in a group that was blocked
	states     []ratelimit.State // of the rates; set before the answer
}

func newWaiter(ctx context.Context, s requestrows.Submission) *waiter {
	w := &waiter{submission: s}
	w.Begin(ctx)
	return w
}

func submissionsOf(group []*waiter) []requestrows.Submission {
	submissions := make([]requestrows.Submission, len(group))
	for i, w := range group {
		submissions[i] = w.submission
	}
	return submissions
}

// leaveError returns the error for a caller whose context ended before w was
// sent, so that nothing was written. The context of a caller whose deadline has
// passed may not have ended yet.
func (w *waiter) leaveError() error {
	err := w.Context().Err()
	if err == nil || errors.Is(err, context.DeadlineExceeded) {
		return &RefusedError{Why: WhyTimeout, RetryAfter: minRetryAfter}
	}
	return err
}

// rateStates returns the states of w's rates if the rate limiter decided w. It
// returns nil if the outcome is unknown.
func (w *waiter) rateStates(err error) []ratelimit.State {
	_, over := errors.AsType[*ratelimit.ExceededError](err)
	if w.Answered() && (err == nil || over) {
		return w.states
	}
	return nil
}

// join adds w to the queue, or returns the error with which the queue refuses
// it.
func join(queue *groupcommit.Queue[*waiter], w *waiter) *RefusedError {
	switch refusal := queue.Join(w.submission.TenantID, w); refusal {
	case groupcommit.Joined:
		return nil
	case groupcommit.Closed:
		return &RefusedError{Why: WhyClosing, RetryAfter: minRetryAfter}
	default:
		return &RefusedError{TenantOnly: refusal == groupcommit.TenantFull, Why: WhyQueue, RetryAfter: minRetryAfter}
	}
}

// enter adds w to the admission queue of its lane, or returns the error with
// which w is refused.
func (in *Intake) enter(w *waiter) *RefusedError {
	key := w.submission.Key()
	if key.Key != "" && in.keys.IsLocked(time.Now(), key) {
		return &RefusedError{Why: WhyKey, RetryAfter: minRetryAfter}
	}
	if refused := in.shedder.enter(w); refused != nil {
		return refused
	}
	refused := join(in.waiting[w.lane], w)
	if refused != nil {
		in.shedder.leave(w, requests.Request{}, false)
	}
	return refused
}

// answer answers w, and no longer counts it as pending.
func (in *Intake) answer(w *waiter, v requests.View, err error) {
	in.shedder.leave(w, v.Request, err == nil)
	if errors.Is(err, requestrows.ErrKeyPurged) {
		err = &RefusedError{Why: WhyKey, RetryAfter: minRetryAfter}
	}
	w.Answer(v, err)
}

// present marks the members of the group whose callers still wait as sent, and
// returns them. It answers the others.
func (in *Intake) present(group []*waiter) []*waiter {
	return groupcommit.Present(group, func(w *waiter) { in.answer(w, requests.View{}, w.leaveError()) })
}
