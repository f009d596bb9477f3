package queues

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/holdfast/holdfast/inventory"
	"github.com/holdfast/holdfast/requests"
)

// LaneConfig bounds how one process serves a lane. The zero value of a field is its default.
type LaneConfig struct {
	DrainConfig
	// Part and Parts divide the slots between processes: with Parts above 1 this one serves those whose number modulo Parts
	// is Part. The normal lane's slots are not divided.
	Part, Parts int
	// Concurrency is how many slots are drained at one time; default 4 for hot. For normal it is how many drains share slot
	// 0, default 2; the slot of diverted tenants has one more.
	Concurrency int
	// ServeFor is how long Serve keeps draining; default 5 s.
	ServeFor time.Duration
	// TickEvery is how often slots with work are looked for, whether a wake came or not; default 1 s.
	TickEvery time.Duration
	// DepthMax is the intakes' DepthMax, for the load that Run publishes; default 100,000.
	DepthMax int
	// StopTimeout is how long Run lets the transactions under way continue after its context has ended; default 7 s.
	StopTimeout time.Duration
}

// Lane serves the slots of one lane in one process.
type Lane struct {
	name    string
	drain   *Drain
	config  LaneConfig
	perSlot int          // drains side by side at the first slot in this process; the others have one
	ticked  atomic.Int64 // when the last tick of Run ended, in nanoseconds since 1970
	log     *slog.Logger
	permits *permits
	load    *Load
	changed chan struct{} // what waits has changed; capacity 1

	mu      sync.Mutex
	streams map[int16]*stream
	start   func(*stream) // starts the goroutines of a stream; nil while Run does not run
	retries chan struct{} // isolated retries are due; capacity 1
}

// NewLane makes a lane. name is requests.Hot or requests.Normal, policy how it claims; perSlot is how many drains may share
// its first slot: 1 where a slot has one owner. Each other slot has one drain at a time in this process.
func NewLane(db *pgxpool.Pool, log *slog.Logger, name string, policy ClaimPolicy, perSlot int, config LaneConfig) (*Lane, error) {
	config, err := config.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("%s lane: %w", name, err)
	}
	log = log.With("lane", name)
	drain := &Drain{db: db, lane: name, policy: policy, config: config.DrainConfig, log: log}
	if name == requests.Hot {
		// A batch of the normal lane may be of 500 variants, each of them with few holds, which a sweep ends.
		drain.due = &inventory.DueExpiry{}
	} else {
		drain.locked = &deferrals{}
	}
	return &Lane{
		name: name, config: config, perSlot: perSlot, log: log, permits: newPermits(config.Concurrency),
		streams: make(map[int16]*stream), retries: make(chan struct{}, 1), changed: make(chan struct{}, 1),
		drain: drain, load: NewLoad(db, config.DepthMax),
	}, nil
}

// Name is the lane's name, which is also its River queue's.
func (l *Lane) Name() string { return l.name }

// Concurrency is how many wakes the lane's River queue works on at one time.
func (l *Lane) Concurrency() int { return l.config.Concurrency }

// Serves reports whether this process serves the slot.
func (l *Lane) Serves(slot int16) bool {
	return l.name == requests.Normal || l.config.Parts <= 1 || int(slot)%l.config.Parts == l.config.Part
}

func (l *Lane) drainsAt(slot int16) int {
	if slot == 0 {
		return l.perSlot
	}
	return 1
}

const (
	// settleTries is how often Serve drains a slot again to see whether a move between the lanes is over; then the tick does.
	settleTries = 10
	// blockedWait is the pause when other transactions have all that is left, twice as long after each further time up to
	// blockedMax; throttledWait is the one under the rate cap.
	blockedWait   = 2 * time.Millisecond
	blockedMax    = 64 * time.Millisecond
	throttledWait = 50 * time.Millisecond
)

// blockedFor is the pause after that many claims in a row, one or more, that found nothing but what others have.
func blockedFor(empty int) time.Duration {
	return min(blockedWait<<min(empty-1, 10), blockedMax)
}

// Serve drains a slot until nothing is left, or for ServeFor: then the report's More is true.
//
// Errors: ErrBusy if another drain has the slot; what RunOnce returns.
func (l *Lane) Serve(ctx context.Context, slot int16) (Report, error) {
	return l.serve(ctx, &stream{slot: slot}, l.config.ServeFor)
}

// serve drains a stream until nothing is left, or for the given time. Other streams have their turn after each batch.
func (l *Lane) serve(ctx context.Context, s *stream, long time.Duration) (total Report, err error) {
	deadline := time.Now().Add(long)
	for settling, empty := 0, 0; ; {
		report, err := l.batch(ctx, ctx, s)
		total.add(report)
		wait := time.Duration(0)
		switch {
		case err != nil:
			return total, err
		case report.Throttled:
			wait = throttledWait
		case report.More && report.Claimed == 0:
			empty++
			wait = blockedFor(empty)
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
		if err := pause(ctx, wait); err != nil {
			return total, err
		}
	}
}

// batch drains a stream once, when the lane has a permit for it, unless ctx has ended by then. Its transaction ends with work.
func (l *Lane) batch(ctx, work context.Context, s *stream) (Report, error) {
	if err := l.permits.acquire(ctx, s.tenant.Load()); err != nil {
		return Report{}, err
	}
	defer l.permits.release()
	if err := ctx.Err(); err != nil {
		return Report{}, err
	}
	report, err := l.drain.RunOnce(work, s.slot)
	if report.Claimed > 0 {
		l.drain.decided.Add(int64(report.Claimed))
		ring(l.changed)
	}
	if o := report.outcomes; l.name == requests.Hot && o != nil && len(o.decided) > 0 {
		s.tenant.Store(&o.decided[0].TenantID)
	}
	return report, err
}

// Broken reports whether a circuit breaker is open, of the lane or of a variant: its requests stay queued, and no report's
// More is true because of them.
func (l *Lane) Broken() bool { return l.drain.breaker.anyOpen() }

// retryBatch is how many lapsed rows one pass tries again at most.
const retryBatch = 20

// queryTimeout bounds each part of a tick that has no bound of its own, should the database be silent.
const queryTimeout = 15 * time.Second

// Tick is one pass over every slot that has work and that the process serves, and over isolated retries that are due. It
// stays no longer at a slot than a tick takes, so that a busy one does not keep it from the others.
func (l *Lane) Tick(ctx context.Context) (Report, error) {
	due, err := l.due(ctx)
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
	for _, slot := range due.slots {
		g.Go(func() error {
			report, err := l.serve(ctx, &stream{slot: slot}, min(l.config.ServeFor, l.config.TickEvery))
			note(report)
			if errors.Is(err, ErrBusy) {
				return nil // its owner drains it
			}
			return err
		})
	}
	if due.retries {
		var retried Report
		retried, err = l.retry(ctx)
		note(retried)
	}
	err = errors.Join(err, g.Wait(), l.drain.noteRate(ctx))
	total.More = more
	return total, err
}

// retry tries isolated requests again that are due.
func (l *Lane) retry(ctx context.Context) (Report, error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	return l.drain.RunCareful(ctx, retryBatch)
}

// Recover is one pass over up to limit requests of the lane in isolated retry whose claim has lapsed: it takes them from a
// process that died and decides each individually.
func (l *Lane) Recover(ctx context.Context, limit int) (Report, error) {
	return l.drain.RunCareful(ctx, limit)
}

func pause(ctx context.Context, d time.Duration) error {
	if d == 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
