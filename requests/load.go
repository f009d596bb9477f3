package requests

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/holdfast/holdfast/internal/telemetry"
)

// Load is what waits for a decision, over all processes, as it was last counted and published.
type Load struct {
	// Age is how long ago the count began, by the database's clock.
	Age time.Duration
	// Drawn is the last sequence number drawn before the count: requests with a higher one may not be in it.
	Drawn int64
	// Lanes are as they were counted, but for their controls, which are present.
	Lanes map[string]LaneLoad
	// Routes are the streams that decide requests, as far as it is not the first one of the normal lane.
	Routes map[Route]Wake
}

// LaneLoad is what waits in a lane, and how it is decided.
type LaneLoad struct {
	Depth int64 `json:"depth"`
	// Tenants is how many tenants have requests waiting, Deepest how many requests those of them have that have most.
	Tenants int64               `json:"tenants"`
	Deepest map[uuid.UUID]int64 `json:"deepest"`
	// Streams are those with the oldest requests, by slot.
	Streams map[int16]StreamLoad `json:"streams"`
	// Rate is how many requests per second were decided lately, RateCap how many may be; 0 for no cap.
	Rate    float64 `json:"-"`
	RateCap int32   `json:"-"`
	Paused  bool    `json:"-"`
}

// StreamLoad is what waits in a stream.
type StreamLoad struct {
	Depth int64 `json:"depth"`
	// OldestSeconds is the age of its oldest request when it was counted.
	OldestSeconds float64 `json:"oldest_seconds"`
	// SoleTenant is the tenant of all its requests; nil if they are of several.
	SoleTenant *uuid.UUID `json:"sole_tenant"`
}

// Route names requests that a stream decides: those for a variant, or all other requests of a tenant if VariantID is
// empty.
type Route struct {
	TenantID  uuid.UUID
	VariantID string
}

const (
	// refreshEvery is how often the load is read while callers come. One that no worker replaces is counted by this
	// process when it is as old as staleAfter.
	refreshEvery, staleAfter = 250 * time.Millisecond, 2 * time.Second
	refreshTimeout           = 5 * time.Second
	// freshFor is how long a load is used after it was read, unless it is being read again. After that, as when no
	// callers came for a while, nothing is known to wait. Nor is a load used that is as old as validFor because no
	// count succeeds.
	freshFor, validFor = time.Second, 2 * time.Minute
	// admittedMax is how many requests of a lane are known to have been admitted since the load was counted.
	admittedMax = 200_000
)

// shedder refuses requests that would wait too long (load shedding). It judges by the published load, by what this
// process has admitted since, and by its callers that wait for admission.
type shedder struct {
	config   IntakeConfig
	called   chan struct{} // a caller came since the load was read; capacity 1
	reading  sync.Mutex    // held while the load is read
	freshFor time.Duration

	mu       sync.Mutex
	load     Load
	valid    time.Time // until when load is used
	pending  map[tenantLane]int64
	admitted map[tenantLane][]int64 // sequence numbers since load was counted
}

// tenantLane is a tenant in a lane; without a tenant, all of them.
type tenantLane struct {
	tenant uuid.UUID
	lane   string
}

func newShedder(config IntakeConfig) *shedder {
	return &shedder{
		config: config, called: make(chan struct{}, 1), freshFor: freshFor, valid: time.Now().Add(refreshTimeout),
		pending: make(map[tenantLane]int64), admitted: make(map[tenantLane][]int64),
	}
}

// enter notes the lane of m and counts it as pending, or refuses it.
func (s *shedder) enter(m *member) *RefusedError {
	now, tenantID := time.Now(), m.submission.TenantID
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.After(s.valid) {
		s.use(Load{Routes: s.load.Routes}) // a variant stays hot when its callers pause
		s.valid = now.Add(refreshTimeout)
	}
	stream := s.stream(tenantID, m.submission.VariantID)
	m.lane = stream.Lane
	signal(s.called)
	if refused := s.judge(tenantID, stream); refused != nil {
		return refused
	}
	s.pending[tenantLane{tenantID, m.lane}]++
	s.pending[tenantLane{lane: m.lane}]++
	return nil
}

// stream returns the one that will decide a request, as far as is known.
func (s *shedder) stream(tenantID uuid.UUID, variantID string) Wake {
	for _, r := range []Route{{tenantID, variantID}, {tenantID, ""}} {
		if to, ok := s.load.Routes[r]; ok {
			return to
		}
	}
	return Wake{Lane: Normal}
}

// leave ends what enter counted. r is m's request if it was admitted.
func (s *shedder) leave(m *member, r Request, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, key := range []tenantLane{{m.submission.TenantID, m.lane}, {lane: m.lane}} {
		if s.pending[key]--; s.pending[key] == 0 {
			delete(s.pending, key)
		}
	}
	waits := ok && r.RequestID == m.submission.RequestID && r.Status == Queued // else it is a repetition, or decided
	if !waits || s.config.Load == nil || r.Sequence <= s.load.Drawn {
		return
	}
	lane := r.Lane
	if m.lane == Hot {
		lane = Hot // which decides what is admitted to the normal lane too, of a variant on its way out
	}
	if own, all := (tenantLane{r.TenantID, lane}), (tenantLane{lane: lane}); len(s.admitted[all]) < admittedMax {
		s.admitted[own] = append(s.admitted[own], r.Sequence)
		s.admitted[all] = append(s.admitted[all], r.Sequence)
	}
}

// run reads the load once, and then while callers come, until ctx ends.
func (s *shedder) run(ctx context.Context) {
	for s.config.Load != nil && ctx.Err() == nil {
		_ = s.refresh(ctx) // until the next time the last load is used
		if pause(ctx, refreshEvery) == nil {
			select {
			case <-ctx.Done():
			case <-s.called:
			}
		}
	}
}

// refresh reads the load, and uses it from now on.
func (s *shedder) refresh(ctx context.Context) (err error) {
	ctx, done := telemetry.Verb(ctx, "requests.refresh_load")
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

// use judges by another load, and by the admitted requests that it does not count: none if it is the zero Load, or if
// its last number drawn is below the one before, as after rows were copied without their sequence.
func (s *shedder) use(load Load) {
	none := load.Lanes == nil || load.Drawn < s.load.Drawn
	for key, numbers := range s.admitted {
		numbers = slices.DeleteFunc(numbers, func(n int64) bool { return none || n <= load.Drawn })
		if s.admitted[key] = numbers; len(numbers) == 0 {
			delete(s.admitted, key)
		}
	}
	s.load = load
}
