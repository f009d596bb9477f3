package admission

import (
	"context"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/holdfast/holdfast/internal/lanes"
	"github.com/holdfast/holdfast/internal/sleep"
	"github.com/holdfast/holdfast/internal/telemetry"
	"github.com/holdfast/holdfast/requests"
)

const (
	// refreshEvery is the interval at which the load is read while callers
	// come. If no worker replaces the load, this process counts it again when
	// it is older than staleAfter.
	refreshEvery, staleAfter = 250 * time.Millisecond, 2 * time.Second
	refreshTimeout           = 5 * time.Second
	// freshFor is how long a load is used after it was read, unless it is being
	// read again. After that, for instance because no callers came for a while,
	// the shedder assumes that no request waits. A load that is as old as
	// validFor, because no count succeeds, is not used either.
	freshFor, validFor = time.Second, 2 * time.Minute
	// admittedMax is how many requests of a lane that were admitted since the
	// last count are remembered at most.
	admittedMax = 200_000
)

// shedder refuses requests that would wait too long (load shedding). It adds up
// the published load, the requests that this process has admitted since, and
// its callers that wait for admission.
type shedder struct {
	config   IntakeConfig
	called   chan struct{} // a caller came since the load was read; capacity 1
	reading  sync.Mutex    // held while the load is read
	freshFor time.Duration

	mu       sync.Mutex
	load     lanes.Load
	valid    time.Time // load is used until then
	pending  map[tenantLane]int64
	admitted map[tenantLane][]int64 // sequence numbers of the requests that load does not count
}

// tenantLane is a tenant in a lane; without a tenant, all tenants.
type tenantLane struct {
	tenant uuid.UUID
	lane   lanes.Lane
}

func newShedder(config IntakeConfig) *shedder {
	return &shedder{
		config: config, called: make(chan struct{}, 1), freshFor: freshFor, valid: time.Now().Add(refreshTimeout),
		pending: make(map[tenantLane]int64), admitted: make(map[tenantLane][]int64),
	}
}

// enter sets the lane of w and counts w as pending, or refuses it.
func (s *shedder) enter(w *waiter) *RefusedError {
	now, tenantID := time.Now(), w.submission.TenantID
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.After(s.valid) {
		s.use(lanes.Load{Routes: s.load.Routes}) // a variant stays hot when its callers pause
		s.valid = now.Add(refreshTimeout)
	}
	stream := s.stream(tenantID, w.submission.VariantID)
	w.lane = stream.Lane
	signal(s.called)
	if refused := s.evaluate(tenantID, stream); refused != nil {
		return refused
	}
	s.pending[tenantLane{tenantID, w.lane}]++
	s.pending[tenantLane{lane: w.lane}]++
	return nil
}

// stream returns the stream that will decide a request, by the routes of the
// last load.
func (s *shedder) stream(tenantID uuid.UUID, variantID string) lanes.Stream {
	for _, r := range []lanes.Route{{TenantID: tenantID, VariantID: variantID}, {TenantID: tenantID}} {
		if to, ok := s.load.Routes[r]; ok {
			return to
		}
	}
	return lanes.Stream{Lane: lanes.Normal}
}

// leave no longer counts w as pending. If ok, w was admitted or is a
// repetition, and r is its request.
func (s *shedder) leave(w *waiter, r requests.Request, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, key := range []tenantLane{{w.submission.TenantID, w.lane}, {lane: w.lane}} {
		s.pending[key]--
		if s.pending[key] == 0 {
			delete(s.pending, key)
		}
	}
	waits := ok && r.RequestID == w.submission.RequestID && r.Status == requests.Queued // not a repetition, and not decided
	if !waits || s.config.Load == nil || r.Sequence <= s.load.Drawn {
		return
	}
	lane := r.Lane
	if w.lane == lanes.Hot {
		lane = lanes.Hot // it also decides a request that is admitted to the normal lane while its variant moves there
	}
	if own, all := (tenantLane{r.TenantID, lane}), (tenantLane{lane: lane}); len(s.admitted[all]) < admittedMax {
		s.admitted[own] = append(s.admitted[own], r.Sequence)
		s.admitted[all] = append(s.admitted[all], r.Sequence)
	}
}

// run reads the load at the start, and then while callers come, until ctx ends.
func (s *shedder) run(ctx context.Context) {
	for s.config.Load != nil && ctx.Err() == nil {
		_ = s.refresh(ctx) // after an error the last load is used until the next refresh
		if sleep.For(ctx, refreshEvery) == nil {
			select {
			case <-ctx.Done():
			case <-s.called:
			}
		}
	}
}

// refresh reads the load and begins to use it.
func (s *shedder) refresh(ctx context.Context) (err error) {
	ctx, done := telemetry.Verb(ctx, "admission.refresh_load")
	defer func() { done("", err) }()
	ctx, cancel := context.WithTimeout(ctx, refreshTimeout)
	defer cancel()
	s.reading.Lock()
	defer s.reading.Unlock()
	s.mu.Lock()
	valid := s.valid
	s.valid = time.Now().Add(refreshTimeout)
	s.mu.Unlock()
	load, err := s.config.Load(ctx, staleAfter)
	s.mu.Lock()
	defer s.mu.Unlock()
	if load.Lanes != nil && load.Age < validFor {
		s.use(load)
		valid = time.Now().Add(s.freshFor)
	}
	s.valid = valid
	return err
}

// use replaces the load, and forgets the admitted requests that the new load
// counts. It forgets all of them if the new load is the zero Load, or if its
// last number drawn is below the one before, for instance after rows were
// copied without their sequence.
func (s *shedder) use(load lanes.Load) {
	none := load.Lanes == nil || load.Drawn < s.load.Drawn
	for key, numbers := range s.admitted {
		numbers = slices.DeleteFunc(numbers, func(n int64) bool { return none || n <= load.Drawn })
		s.admitted[key] = numbers
		if len(numbers) == 0 {
			delete(s.admitted, key)
		}
	}
	s.load = load
}

// evaluate returns nil if a request of the tenant may wait in the stream, else
// the refusal.
//
// The bound is the depth of the lane. A tenant may have as many requests
// waiting as the lane has free places, times share / (100 − share). A tenant
// alone fills its share. The more tenants have requests waiting, the more
// places are left for the next one.
func (s *shedder) evaluate(tenantID uuid.UUID, stream lanes.Stream) *RefusedError {
	lane, all, own := s.load.Lanes[stream.Lane], tenantLane{lane: stream.Lane}, tenantLane{tenantID, stream.Lane}
	depth := lane.Depth + int64(len(s.admitted[all])) + s.pending[all]
	mine := lane.Deepest[tenantID] + int64(len(s.admitted[own])) + s.pending[own]
	limit := int64(s.config.DepthMax)
	if lane.RateCap > 0 { // requests beyond this would be too old before they are decided
		limit = min(limit, max(1, int64(float64(lane.RateCap)*s.config.AgeMax.Seconds())))
	}
	allowed := limit
	if share := int64(s.config.TenantSharePercent); share < 100 {
		allowed = max(0, (limit-depth)*share/(100-share))
	}
	refused := &RefusedError{Lane: stream.Lane, RetryAfter: retryAfter(lane, depth)}
	there := lane.Streams[stream.Slot]
	switch {
	case depth >= limit || mine >= allowed:
		refused.Why, refused.TenantOnly = WhyDepth, mine*max(1, lane.Tenants) >= depth
	case there.OldestSeconds+s.load.Age.Seconds() > s.config.AgeMax.Seconds() && there.Depth > 0:
		sole := there.SoleTenant != nil && *there.SoleTenant == tenantID
		refused.Why, refused.TenantOnly = WhyAge, sole && !lane.Paused && lane.Rate > 0
	default:
		return nil
	}
	return refused
}

// retryAfter returns about how long the lane takes to decide depth requests.
func retryAfter(l lanes.LaneLoad, depth int64) time.Duration {
	if l.Rate <= 0 || l.Paused {
		return retryAfterMax
	}
	seconds := math.Ceil(float64(depth) / l.Rate)
	return min(max(time.Duration(min(seconds, retryAfterMax.Seconds()))*time.Second, minRetryAfter), retryAfterMax)
}
