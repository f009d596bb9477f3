package admission

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/internal/fair"
	"github.com/holdfast/holdfast/internal/telemetry"
	"github.com/holdfast/holdfast/lanes"
	"github.com/holdfast/holdfast/queues"
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

	waiting   map[lanes.Lane]*fair.Queue[*waiter] // by lane, so that callers of a hot variant delay no others
	replays   *fair.Queue[*waiter]                // refused callers whose keys may be known
	shedder   *shedder
	bisection *bisection
	keys      *ratelimit.LockedSet[requests.Key]
	rates     *ratelimit.Cache
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
	waiting := make(map[lanes.Lane]*fair.Queue[*waiter])
	for _, lane := range lanes.All() {
		waiting[lane] = fair.NewQueue[*waiter](config.QueueMax)
	}
	return &Intake{
		db: db, wakes: newWakeDebouncer(inserter), config: config, waiting: waiting,
		replays: fair.NewQueue[*waiter](replayLookupMax), shedder: newShedder(config), bisection: newBisection(),
		keys: ratelimit.NewLockedSet[requests.Key](lockedKeysMax), rates: ratelimit.NewCache(),
	}, nil
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
func (in *Intake) Submit(ctx context.Context, s requests.Submission) (requests.Request, error) {
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
	select {
	case <-w.answered:
		return w.view, w.err
	case <-ctx.Done():
		return requests.View{}, in.leave(ctx, w)
	}
}

// leave returns the error of a caller whose ctx ends before w is answered. If w
// was not sent yet, it is refused and never admitted. Otherwise its group is
// being committed, and the outcome is unknown.
func (in *Intake) leave(ctx context.Context, w *waiter) error {
	if w.leave() {
		err := w.leaveError()
		count(ctx, err)
		return err
	}
	return fmt.Errorf("admit request %s: %w: %w", w.submission.RequestID, ErrOutcomeUnknown, ctx.Err())
}

// Run commits groups until ctx ends. Then it closes the queues, commits the
// callers that are in them, inserts the last wakes and returns. It cancels the
// groups that are not committed within StopTimeout of the end; their outcome is
// unknown.
func (in *Intake) Run(ctx context.Context) error {
	work, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	var working sync.WaitGroup
	for _, queue := range in.waiting {
		for range in.config.Committers {
			working.Go(func() {
				queue.Serve(in.config.GroupMax, func(group []*waiter) {
					for _, locked := range in.commit(work, group) {
						in.startBisection(work, locked)
					}
				})
			})
		}
	}
	working.Go(func() { in.lookUpReplays(work) })
	working.Go(func() { in.shedder.run(ctx) })
	ended := make(chan struct{})
	var waking sync.WaitGroup
	waking.Go(func() { in.wakes.run(work, ended) })
	<-ctx.Done()
	for _, queue := range in.waiting {
		queue.Close()
	}
	in.replays.Close()
	defer time.AfterFunc(in.config.StopTimeout, cut).Stop()
	working.Wait()
	in.bisection.running.Wait()
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
func SubmitTx(ctx context.Context, tx pgx.Tx, inserter *queues.WakeInserter, s requests.Submission) (requests.Request, error) {
	if err := s.Prepare(ctx); err != nil {
		return requests.Request{}, err
	}
	inserted, err := requests.Insertion{Group: []requests.Submission{s}}.InsertTx(ctx, tx)
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
func observe(ctx context.Context, group []*waiter, admitted map[requests.Ref]requests.Result) {
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
