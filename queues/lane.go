package queues

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/holdfast/holdfast/requests"
)

// LaneConfig says how one process serves a lane. The zero value of a field is its default.
type LaneConfig struct {
	DrainConfig
	// Slots are those to serve; all the lane has when empty.
	Slots []int16
	// Concurrency is how many wakes are worked at one time, and how many slots the tick drains at one time beside them;
	// default 4 for hot. For normal, at its one slot, it is how many drains there are; default 2.
	Concurrency int
	// ServeFor is how long one wake keeps draining before it rings again; default 5 s.
	ServeFor time.Duration
	// TickEvery is how often every slot is drained whether a wake came or not; default 1 s.
	TickEvery time.Duration
}

// Lane serves the slots of one lane in one process.
type Lane struct {
	name     string
	drain    *Drain
	config   LaneConfig
	perSlot  int // drains side by side at the first slot in this process; the others have one at a time
	decided  atomic.Int64
	log      *slog.Logger
	mu       sync.Mutex
	slots    map[int16]*slotState
	serveFor time.Duration
	ticked   atomic.Int64 // when the last tick of Run ended, in nanoseconds since 1970
}

// slotState says what this process does at a slot: how many drains run, and whether a wake found them all busy.
type slotState struct {
	running int
	marked  bool
}

// NewLane makes a lane. name is requests.Hot or requests.Normal, policy how it claims; perSlot means how many drains may share
// its first slot: 1 where a slot has one owner. Each other slot has one drain at a time in this process.
func NewLane(db *pgxpool.Pool, log *slog.Logger, name string, policy ClaimPolicy, perSlot int, config LaneConfig) (*Lane, error) {
	config, err := config.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("%s lane: %w", name, err)
	}
	log = log.With("lane", name)
	return &Lane{
		name: name, config: config, perSlot: perSlot, log: log, slots: make(map[int16]*slotState), serveFor: config.ServeFor,
		drain: &Drain{db: db, lane: name, policy: policy, config: config.DrainConfig, log: log},
	}, nil
}

// Name is the lane's name, which is also its River queue's.
func (l *Lane) Name() string { return l.name }

// Concurrency is how many wakes the lane's River queue works on at one time.
func (l *Lane) Concurrency() int { return l.config.Concurrency }

// Serves reports whether this process serves the slot.
func (l *Lane) Serves(slot int16) bool {
	return len(l.config.Slots) == 0 || slices.Contains(l.config.Slots, slot)
}

const (
	// busyTries is how often a wake asks for a slot that another process owns, busyWait apart.
	busyTries = 10
	busyWait  = 10 * time.Millisecond
	// settleTries is how often a wake looks whether a move between the lanes is over; then the tick does.
	settleTries = 10
	// blockedWait is the pause when what is left is in somebody else's hands, twice as long after each further time up to
	// blockedMax; throttledWait is the one under the rate cap.
	blockedWait   = 2 * time.Millisecond
	blockedMax    = 64 * time.Millisecond
	throttledWait = 50 * time.Millisecond
)

// blockedFor is the pause after so many claims on end, one or more, that found nothing but what others have.
func blockedFor(empty int) time.Duration {
	return min(blockedWait<<min(empty-1, 10), blockedMax)
}

// Serve drains a slot until nothing is left, or for ServeFor: then the report says More. If this process has as many
// drains there as may be, it leaves a mark and returns; whoever drains looks again before ending.
//
// Errors: ErrBusy if another process kept the slot; what RunOnce returns.
func (l *Lane) Serve(ctx context.Context, slot int16) (Report, error) {
	return l.serve(ctx, slot, l.serveFor)
}

func (l *Lane) serve(ctx context.Context, slot int16, long time.Duration) (total Report, err error) {
	if !l.enter(slot) {
		return Report{}, nil
	}
	left := false
	defer func() {
		if !left {
			l.leave(slot, true)
		}
	}()
	deadline := time.Now().Add(long)
	for busy, settling, empty := 0, 0, 0; ; {
		report, err := l.drain.RunOnce(ctx, slot)
		total.add(report)
		l.decided.Add(int64(report.Claimed))
		wait := time.Duration(0)
		switch {
		case errors.Is(err, ErrBusy) && busy < busyTries:
			busy++
			wait = busyWait
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
			if left = l.leave(slot, false); left {
				return total, nil
			}
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

// enter takes a place at the slot, or leaves a mark.
func (l *Lane) enter(slot int16) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.slots[slot]
	if s == nil {
		s = &slotState{}
		l.slots[slot] = s
	}
	if s.running >= l.drainsAt(slot) {
		s.marked = true
		return false
	}
	s.running++
	return true
}

func (l *Lane) drainsAt(slot int16) int {
	if slot == 0 {
		return l.perSlot
	}
	return 1
}

// leave gives the place back. If a mark was left it takes the mark and stays, unless it must go.
func (l *Lane) leave(slot int16, must bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.slots[slot]
	if s.marked && !must {
		s.marked = false
		return false
	}
	s.running--
	return true
}

// Run drains every slot each TickEvery, whether a wake came or not, tries lapsed rows of the careful way again and notes
// the rate, until ctx ends. While a slot has more, the next tick follows at once.
func (l *Lane) Run(ctx context.Context) error {
	tick := time.NewTicker(l.config.TickEvery)
	defer tick.Stop()
	l.ticked.Store(time.Now().UnixNano())
	for {
		report, err := l.Tick(ctx)
		l.ticked.Store(time.Now().UnixNano())
		if err != nil && ctx.Err() == nil {
			l.log.WarnContext(ctx, "a tick could not drain everything", "error", err)
		}
		if err == nil && report.More && ctx.Err() == nil {
			continue
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// Broken reports whether a circuit breaker is open, of the lane or of a variant: its requests stay queued, and no report says
// More because of them.
func (l *Lane) Broken() bool { return l.drain.breaker.anyOpen() }

// Ticked returns when the last tick of Run ended, with an error or not, or when Run began; the zero time before that.
func (l *Lane) Ticked() time.Time {
	at := l.ticked.Load()
	if at == 0 {
		return time.Time{}
	}
	return time.Unix(0, at)
}

// carefulBatch is how many lapsed rows one tick tries again at most.
const carefulBatch = 100

// lookMax bounds each part of a tick that has no bound of its own, should the database be silent.
const lookMax = 15 * time.Second

// Tick is one pass over every slot the process serves, and over lapsed rows of the careful way. It stays no longer at a
// slot than a tick takes, so that a busy one does not keep it from the others.
func (l *Lane) Tick(ctx context.Context) (Report, error) {
	slots, err := l.served(ctx)
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
	g.SetLimit(l.config.Concurrency)
	for _, slot := range slots {
		g.Go(func() error {
			report, err := l.serve(ctx, slot, min(l.serveFor, l.config.TickEvery))
			note(report)
			if errors.Is(err, ErrBusy) {
				return nil // its owner looks again
			}
			return err
		})
	}
	careful, err := l.runCareful(ctx)
	note(careful)
	err = errors.Join(err, g.Wait(), l.noteRate(ctx))
	total.More = more
	return total, err
}

func (l *Lane) runCareful(ctx context.Context) (Report, error) {
	ctx, cancel := context.WithTimeout(ctx, lookMax)
	defer cancel()
	return l.drain.RunCareful(ctx, carefulBatch)
}

func (l *Lane) noteRate(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, lookMax)
	defer cancel()
	return noteRate(ctx, l.drain.db, l.name, l.decided.Swap(0))
}

// Recover is one pass over up to limit requests of the lane that went the careful way and whose claim has lapsed: it
// takes them from who died and tries each alone.
func (l *Lane) Recover(ctx context.Context, limit int) (Report, error) {
	return l.drain.RunCareful(ctx, limit)
}

// served are the slots this process serves, of those there are.
func (l *Lane) served(ctx context.Context) ([]int16, error) {
	ctx, cancel := context.WithTimeout(ctx, lookMax)
	defer cancel()
	all, err := slotsOf(ctx, l.drain.db, l.name)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(all, func(slot int16) bool { return !l.Serves(slot) }), nil
}

// ring returns the wake of a slot.
func (l *Lane) wake(slot int16) requests.Wake { return requests.Wake{Lane: l.name, Slot: slot} }

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
