package queues

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/holdfast/holdfast/internal/lanes"
	"github.com/holdfast/holdfast/internal/sleep"
)

// LaneConfig bounds how one process serves a lane. The zero value of a field is
// its default.
type LaneConfig struct {
	DrainConfig
	// Off leaves the lane to other processes. A Lane itself does not read it.
	Off bool
	// Part and Parts divide the slots between processes: if Parts is above 1,
	// this process serves the slots whose number modulo Parts is Part. The
	// slots of the normal lane are not divided.
	Part, Parts int
	// Concurrency is how many slots are drained concurrently; default 4 for
	// hot. For normal it is how many drains share slot 0, default 2; the slot
	// of diverted tenants has one more.
	Concurrency int
	// ServeFor is how long Serve keeps draining; default 5 s.
	ServeFor time.Duration
	// TickEvery is the interval of ticks, which find slots with work whether a
	// wake came or not; default 1 s.
	TickEvery time.Duration
	// StopTimeout is how long Run lets the transactions under way continue
	// after its context has ended; default 7 s.
	StopTimeout time.Duration
}

func (c LaneConfig) withDefaults() (LaneConfig, error) {
	c.ServeFor = cmp.Or(c.ServeFor, 5*time.Second)
	c.TickEvery = cmp.Or(c.TickEvery, time.Second)
	c.StopTimeout = cmp.Or(c.StopTimeout, 7*time.Second)
	c.Parts = cmp.Or(c.Parts, 1)
	if c.Concurrency < 1 || min(c.ServeFor, c.TickEvery, c.StopTimeout) <= 0 {
		return c, fmt.Errorf("want concurrency (%d) ≥ 1, serve_for (%s), tick_every (%s) and stop_timeout (%s) > 0",
			c.Concurrency, c.ServeFor, c.TickEvery, c.StopTimeout)
	}
	if c.Part < 0 || c.Part >= c.Parts {
		return c, fmt.Errorf("want 0 ≤ part (%d) < parts (%d)", c.Part, c.Parts)
	}
	var err error
	c.DrainConfig, err = c.DrainConfig.withDefaults()
	return c, err
}

// Lane serves the slots of one lane in one process.
type Lane struct {
	name    lanes.Lane
	traits  traits
	drain   *Drain
	config  LaneConfig
	drains  int          // that share slot 0 in this process, if they share it
	ticked  atomic.Int64 // when the last tick of Run ended, in nanoseconds since 1970
	log     *slog.Logger
	permits *permits
	watch   lockWatch
	load    *Load
	changed chan struct{} // the queued requests have changed; capacity 1

	mu      sync.Mutex
	streams map[int16]*stream
	start   func(*stream) // starts the goroutines of a stream; nil while Run does not run
	retries chan struct{} // isolated retries are due; capacity 1
}

// NewLane makes a lane that claims by policy.
func NewLane(db *pgxpool.Pool, log *slog.Logger, name lanes.Lane, policy ClaimPolicy, config LaneConfig) (*Lane, error) {
	traits := traitsOf[name]
	config.Batch = cmp.Or(config.Batch, traits.batch)
	drains := cmp.Or(config.Concurrency, traits.drains)
	config.Concurrency = drains + traits.extraDrains
	config, err := config.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("%s lane: %w", name, err)
	}
	lockWaits := 0
	if traits.waits {
		lockWaits = LockWaits(config.Concurrency)
	}
	log = log.With("lane", name)
	drain := &Drain{decider: decider{db: db, lane: name, traits: traits, config: config.DrainConfig, log: log}, policy: policy}
	drain.breaker.oneVariant = traits.oneVariant
	return &Lane{
		name: name, traits: traits, config: config, drains: drains, log: log, permits: newPermits(config.Concurrency, lockWaits),
		streams: make(map[int16]*stream), retries: make(chan struct{}, 1), changed: make(chan struct{}, 1),
		drain: drain, load: NewLoad(db),
		watch: lockWatch{db: db, probing: make(chan struct{}, 1)},
	}, nil
}

// Name is the lane's name, which is also its River queue's.
func (l *Lane) Name() lanes.Lane { return l.name }

// Concurrency is how many wakes the lane's River queue works on at one time.
func (l *Lane) Concurrency() int { return l.config.Concurrency }

// Serves reports whether this process serves the slot.
func (l *Lane) Serves(slot int16) bool {
	return l.traits.shared || l.config.Parts <= 1 || int(slot)%l.config.Parts == l.config.Part
}

func (l *Lane) drainsAt(slot int16) int {
	if l.traits.shared && slot == 0 {
		return l.drains
	}
	return 1
}

const (
	// settleTries is how often Serve drains a slot again to find the end of a
	// move between the lanes. After that the tick does.
	settleTries = 10
	// blockedWait is the pause when other transactions have locked all requests
	// that are left. It doubles each further time, up to blockedMax.
	// throttledWait is the pause under the rate cap.
	blockedWait   = 2 * time.Millisecond
	blockedMax    = 64 * time.Millisecond
	throttledWait = 50 * time.Millisecond
)

// blockedPause returns the pause after that many claims in a row, one or more,
// that found only locked requests.
func blockedPause(empty int) time.Duration {
	return min(blockedWait<<min(empty-1, 10), blockedMax)
}

// Serve drains a slot until nothing is left, or for ServeFor; then the report's
// More is true.
//
// Errors: lanes.ErrBusy if another drain has the slot; the errors of RunOnce.
func (l *Lane) Serve(ctx context.Context, slot int16) (Report, error) {
	return l.serve(ctx, &stream{slot: slot}, l.config.ServeFor)
}

// serve drains a stream until nothing is left, or for the given time. After
// each batch it returns its permit, so that other streams are drained in turn.
func (l *Lane) serve(ctx context.Context, s *stream, long time.Duration) (total Report, err error) {
	deadline := time.Now().Add(long)
	for settling, empty := 0, 0; ; {
		report, err := l.batch(ctx, ctx, s)
		total.add(report)
		wait := time.Duration(0)
		switch {
		case err != nil:
			return total, err
		case report.locked != nil:
			waiting, cancel := context.WithDeadline(ctx, deadline)
			_ = l.watch.wait(waiting, *report.locked) // or until the deadline
			cancel()
		case report.Throttled:
			wait = throttledWait
		case report.More && report.Claimed == 0:
			empty++
			wait = blockedPause(empty)
		case report.More:
			empty = 0
		case report.Moving && settling < settleTries:
			settling++
			wait = blockedWait
		default:
			return total, nil
		}
		if time.Now().After(deadline) {
			total.More = true
			return total, nil
		}
		if err := sleep.For(ctx, wait); err != nil {
			return total, err
		}
	}
}

// batch drains a stream once, when the lane has a permit for it, unless ctx has
// ended. Its transaction ends when work does.
func (l *Lane) batch(ctx, work context.Context, s *stream) (Report, error) {
	if err := l.permits.acquire(ctx, s.tenant.Load()); err != nil {
		return Report{}, err
	}
	held := &permit{of: l.permits, lockWait: s.lockWait(l.traits)}
	defer held.release()
	if err := ctx.Err(); err != nil {
		return Report{}, err
	}
	report, err := l.drain.RunOnce(withPermit(work, held), s.slot)
	s.noteLock(report)
	if report.Claimed > 0 {
		l.drain.decided.Add(int64(report.Claimed))
		signal(l.changed)
	}
	if o := report.outcomes; l.traits.oneVariant && o != nil && len(o.decided) > 0 {
		s.tenant.Store(&o.decided[0].TenantID)
	}
	return report, err
}

// BreakerOpen reports whether the circuit breaker of the lane or of a variant
// is open. Requests behind an open breaker stay queued, and do not set a
// report's More.
func (l *Lane) BreakerOpen() bool { return l.drain.breaker.anyOpen() }

// retryBatch is how many lapsed requests one pass retries at most.
const retryBatch = 20

// queryTimeout bounds each part of a tick that has no other bound, in case the
// database does not answer.
const queryTimeout = 15 * time.Second

// Tick makes one pass over every slot that has work and that the process
// serves, over the waiting lists, and over isolated retries that are due. It
// drains a slot for at most
// the tick interval, so that a busy slot does not delay the others.
func (l *Lane) Tick(ctx context.Context) (Report, error) {
	slots, retries, err := l.due(ctx)
	if err != nil {
		return Report{}, err
	}
	var mu sync.Mutex
	var total Report
	more := false
	note := func(r Report) {
		mu.Lock()
		defer mu.Unlock()
		total.add(r)
		more = more || r.More
	}
	var g errgroup.Group
	for _, slot := range slots {
		g.Go(func() error {
			report, err := l.serve(ctx, &stream{slot: slot}, min(l.config.ServeFor, l.config.TickEvery))
			note(report)
			if errors.Is(err, lanes.ErrBusy) {
				return nil // its owner drains it
			}
			return err
		})
	}
	if retries {
		var retried Report
		retried, err = l.retry(ctx)
		note(retried)
	}
	err = errors.Join(err, g.Wait())
	if l.traits.offers {
		offered, _, _, offering := l.offer(ctx)
		note(offered)
		err = errors.Join(err, offering)
	}
	err = errors.Join(err, l.drain.recordRate(ctx))
	total.More = more
	return total, err
}

// retry retries the isolated requests that are due.
func (l *Lane) retry(ctx context.Context) (Report, error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	return l.drain.RunRetries(ctx, retryBatch)
}

// Recover makes one pass over up to limit requests of the lane in isolated
// retry whose claim has lapsed: it takes them over from a process that died,
// and decides each individually.
func (l *Lane) Recover(ctx context.Context, limit int) (Report, error) {
	return l.drain.RunRetries(ctx, limit)
}

// stalledAfter is the time without an ended tick after which a lane, and with
// it the process, counts as dead. A tick ends within half of that, also while
// the database does not answer.
const stalledAfter = time.Minute

// Stalled returns the name of a lane whose ticks do not end, or "".
func Stalled(served []*Lane, now time.Time) lanes.Lane {
	for _, lane := range served {
		if at := lane.Ticked(); !at.IsZero() && now.Sub(at) > stalledAfter {
			return lane.Name()
		}
	}
	return ""
}
