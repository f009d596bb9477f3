package requests

import (
	"context"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/holdfast/holdfast/internal/telemetry"
)

// Load is what waits for a decision, over all processes, as it was last counted and published.
type Load struct {
	// Age is how long ago the count began, by the database's clock. Rest is how long after a count the next one begins, at
	// the soonest: twenty times as long as it took.
	Age, Rest time.Duration
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

// Route names requests that a stream decides: those for a variant, or all other requests of a tenant if VariantID is empty.
type Route struct {
	TenantID  uuid.UUID
	VariantID string
}

const (
	// refreshEvery is how often the load is read while callers come; refreshSoon if one of them was refused.
	refreshEvery, refreshSoon = 250 * time.Millisecond, 50 * time.Millisecond
	// staleAfter is the age at which a load that no worker replaces is counted by this process; refreshSoon if a caller was
	// refused, so that refusing lets no lane run empty.
	staleAfter     = 2 * time.Second
	refreshTimeout = 5 * time.Second
	// validFor is how long a load is used that cannot be replaced, besides the time in which it is not counted again. After
	// that nothing is known to wait.
	validFor = 10 * time.Second
	// admittedMax is how many requests are known to have been admitted since the load was counted.
	admittedMax = 200_000
)

// shedder refuses requests that would wait too long (load shedding). It judges by the published load, by what this
// process has admitted since, and by its callers that wait for admission.
type shedder struct {
	config  IntakeConfig
	overdue chan struct{} // the load is to be read; capacity 1
	reading sync.Mutex    // held while the load is read

	mu       sync.Mutex
	load     Load
	next     time.Time // when to read the load again; the zero time while that is under way
	valid    time.Time // until when it is used
	refused  bool      // a caller, since it was read
	pending  map[tenantLane]int64
	since    map[tenantLane]int64 // the number of admitted
	admitted []admitted           // since load was counted
}

// tenantLane is a tenant in a lane; without a tenant, all of them.
type tenantLane struct {
	tenant uuid.UUID
	lane   string
}

type admitted struct {
	tenantLane
	sequence int64
}

func newShedder(config IntakeConfig) *shedder {
	return &shedder{
		config: config, overdue: make(chan struct{}, 1), valid: time.Now().Add(validFor),
		pending: make(map[tenantLane]int64), since: make(map[tenantLane]int64),
	}
}

// enter notes the lane of m and counts it as pending, or refuses it.
func (s *shedder) enter(m *member) *RefusedError {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.After(s.valid) {
		s.load, s.valid = Load{}, now.Add(validFor)
		s.forget(math.MaxInt64)
	}
	stream := s.stream(m.submission.TenantID, m.submission.VariantID)
	m.lane = stream.Lane
	refused := s.judge(m.submission.TenantID, stream)
	if refused == nil {
		s.count(s.pending, tenantLane{m.submission.TenantID, m.lane}, 1)
	} else if !s.refused && !s.next.IsZero() {
		s.refused, s.next = true, s.next.Add(refreshSoon-refreshEvery)
	}
	if !s.next.IsZero() && now.After(s.next) {
		s.next = time.Time{}
		signal(s.overdue)
	}
	return refused
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
	s.count(s.pending, tenantLane{m.submission.TenantID, m.lane}, -1)
	waits := ok && r.RequestID == m.submission.RequestID && r.Status == Queued // else it is a repetition, or decided
	if !waits || s.config.Load == nil || r.Sequence <= s.load.Drawn || len(s.admitted) >= admittedMax {
		return
	}
	key := tenantLane{r.TenantID, r.Lane}
	if m.lane == Hot {
		key.lane = Hot // which decides what is admitted to the normal lane too, of a variant on its way out
	}
	s.admitted = append(s.admitted, admitted{key, r.Sequence})
	s.count(s.since, key, 1)
}

// count adds n to a tenant's number in a lane, and to the lane's.
func (*shedder) count(numbers map[tenantLane]int64, of tenantLane, n int64) {
	for _, key := range []tenantLane{of, {lane: of.lane}} {
		if numbers[key] += n; numbers[key] == 0 {
			delete(numbers, key)
		}
	}
}

// forget leaves out the admitted requests up to a sequence number.
func (s *shedder) forget(drawn int64) {
	s.admitted = slices.DeleteFunc(s.admitted, func(a admitted) bool { return a.sequence <= drawn })
	clear(s.since)
	for _, a := range s.admitted {
		s.count(s.since, a.tenantLane, 1)
	}
}

// run reads the load once, and then whenever it is due, until ctx ends.
func (s *shedder) run(ctx context.Context) {
	for s.config.Load != nil {
		_ = s.refresh(ctx) // until the next time the last load is used
		select {
		case <-ctx.Done():
			return
		case <-s.overdue:
		}
	}
}

// refresh reads the load.
func (s *shedder) refresh(ctx context.Context) (err error) {
	ctx, done := telemetry.Verb(ctx, "requests.refresh_load")
	defer func() { done("", err) }()
	ctx, cancel := context.WithTimeout(ctx, refreshTimeout)
	defer cancel()
	s.reading.Lock()
	defer s.reading.Unlock()
	stale := staleAfter
	s.mu.Lock()
	if s.refused {
		stale = refreshSoon
	}
	s.mu.Unlock()
	load, err := s.config.Load(ctx, stale)
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	s.next, s.refused = now.Add(refreshEvery), false
	if load.Lanes == nil {
		return err
	}
	if load.Drawn < s.load.Drawn { // as after rows were copied without their sequence
		s.forget(math.MaxInt64)
	}
	s.forget(load.Drawn)
	s.load, s.valid = load, now.Add(validFor-load.Age+2*load.Rest)
	return err
}
