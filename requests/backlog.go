package requests

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/internal/telemetry"
)

// backlog knows about how much waits for a decision, of each tenant in each lane: what the database said when it was last
// asked, and what this process let in since. It asks only while callers come, and spends a thirtieth of the time on it,
// more only where callers are refused and would otherwise be for longer than there is reason to.
//
// What other processes let in since the last look is told by the sequence: this process's own requests draw their numbers
// among the others', so if it drew one in three, what it let in to a lane counts three times. So does a tenant's own where
// that is most of what this process drew; else it counts once, because the sequence does not tell whose the others are.
type backlog struct {
	db     *pgxpool.Pool
	config IntakeConfig
	kick   chan struct{} // asks for a look
	grace  time.Duration // how long after the next look was due the last one still counts

	mu      sync.Mutex
	seen    picture
	pace    map[string]float64 // by lane: requests decided a second between the last two looks
	took    time.Duration      // by the last look
	looking bool
	due     time.Time // when to look again
	until   time.Time // until when seen is good enough to refuse somebody
	tallies map[owner]*tally
	drew    tally // what this process drew, its repetitions too
	latest  int64 // the highest number it drew
}

// owner is a tenant in a lane; without a tenant, all of them.
type owner struct {
	tenant uuid.UUID
	lane   string
}

// tally counts what this process let in: pending stand in its line or are being admitted, before were admitted by the time
// the present look began, after since then.
type tally struct{ pending, before, after int64 }

// picture is what waits, as one look found it.
type picture struct {
	began   time.Time // by this process's clock
	upTo    int64     // the last sequence number drawn when the look began
	lanes   map[string]laneState
	owners  map[owner]int64
	streams map[Wake]streamState
	routes  map[routeRef]Wake
}

type laneState struct {
	depth   int64
	owners  int64 // how many tenants have something waiting
	rate    float64
	rateCap int32
	paused  bool
}

type streamState struct {
	oldest time.Duration
	sole   uuid.UUID // whose all of it is, if one tenant's
}

type routeRef struct {
	tenantID  uuid.UUID
	variantID string // "" for all that have no route of their own
}

func newBacklog(db *pgxpool.Pool, config IntakeConfig) *backlog {
	return &backlog{
		db: db, config: config, kick: make(chan struct{}, 1), grace: time.Second,
		tallies: make(map[owner]*tally), pace: make(map[string]float64),
	}
}

// enter counts m in, or refuses it.
func (b *backlog) enter(m *member) *RefusedError {
	now := time.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.looking && now.After(b.due) {
		b.looking = true
		select {
		case b.kick <- struct{}{}:
		default: // asked for already
		}
	}
	stream := b.stream(m.submission.TenantID, m.submission.VariantID)
	m.lane = stream.Lane
	who := owner{m.submission.TenantID, stream.Lane}
	m.own, m.all = b.tally(who), b.tally(owner{lane: stream.Lane})
	if now.Before(b.until) {
		if refused := b.judge(who, stream, m.own, m.all); refused != nil {
			b.hasten(who.lane, now)
			m.own, m.all = nil, nil
			return refused
		}
	}
	m.own.pending++
	m.all.pending++
	return nil
}

// stream is the one that would decide a request, as far as is known.
func (b *backlog) stream(tenantID uuid.UUID, variantID string) Wake {
	for _, from := range []routeRef{{tenantID, variantID}, {tenantID, ""}} {
		if to, ok := b.seen.routes[from]; ok {
			return to
		}
	}
	return Wake{Lane: Normal}
}

// leave counts out m, whom enter counted in. r is its request if it was admitted.
func (b *backlog) leave(m *member, r Request, admitted bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	m.own.pending--
	m.all.pending--
	if !admitted {
		return
	}
	b.drew.after++
	if r.RequestID != m.submission.RequestID {
		return // a repetition
	}
	b.latest = max(b.latest, r.Sequence)
	if r.Status == Queued {
		lane := r.Lane
		if m.lane == Hot {
			lane = Hot // which decides what is admitted to the normal lane too, of a variant on its way out
		}
		b.tally(owner{r.TenantID, lane}).after++
		b.tally(owner{lane: lane}).after++
	}
}

func (b *backlog) tally(who owner) *tally {
	t := b.tallies[who]
	if t == nil {
		t = &tally{}
		b.tallies[who] = t
	}
	return t
}

// let is how many this process let in that the last look did not count, or may not have.
func (t *tally) let() int64 { return t.before + t.after }

const (
	// drewMin is how many numbers this process must have drawn to tell how many the others did.
	drewMin = 32
	// othersMax is how many times its own they are at most.
	othersMax = 16
)

// scaled is how many requests all processes let in, for n that this one did.
func (b *backlog) scaled(n int64) int64 {
	drawn, drew := b.latest-b.seen.upTo, b.drew.let()
	if drawn <= drew || drew < drewMin {
		return n
	}
	return int64(float64(n) * min(float64(drawn)/float64(drew), othersMax))
}

// scaledOwn is scaled for n of one tenant in one lane, if they are most of what this process drew.
func (b *backlog) scaledOwn(n int64) int64 {
	if 2*n > b.drew.let() {
		return b.scaled(n)
	}
	return n
}

// run looks whenever it is asked to, until ctx ends.
func (b *backlog) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-b.kick:
			_ = b.look(ctx) // without a look nobody is refused by it; the line's bound remains
		}
	}
}

const (
	// lookMax bounds one look.
	lookMax = 5 * time.Second
	// A look is followed by calm, and by lookRest times its own duration, without one. Where somebody is refused meanwhile
	// and what waits is decided faster than that, the next look comes earlier, but not within brisk and lookHaste times
	// the last one's duration.
	lookRest, lookHaste = 30, 6
	calm, brisk         = 500 * time.Millisecond, 20 * time.Millisecond
)

// hasten has the next look made in time, now that somebody is refused: before half of what a tenant may have waiting in
// the lane is decided, so that refusing never lets a lane run empty.
func (b *backlog) hasten(lane string, now time.Time) {
	came := b.scaled(b.tally(owner{lane: lane}).after)
	flow := max(b.seen.lanes[lane].rate, b.pace[lane], float64(came)/max(now.Sub(b.seen.began).Seconds(), brisk.Seconds()))
	half := float64(b.config.DepthMax) * float64(b.config.TenantSharePercent) / 200
	rest := min(lookRest*b.took, time.Duration(half/max(flow, 1)*float64(time.Second)))
	if due := b.seen.began.Add(b.took + max(rest, lookHaste*b.took, brisk)); due.Before(b.due) {
		b.due = due
	}
}

// look asks the database what waits.
func (b *backlog) look(ctx context.Context) (err error) {
	ctx, done := telemetry.Verb(ctx, "requests.look")
	defer func() { done("", err) }()
	ctx, cancel := context.WithTimeout(ctx, lookMax)
	defer cancel()
	b.mu.Lock()
	b.looking = true
	latest := b.latest
	b.drew.age()
	for who, t := range b.tallies {
		if t.age(); *t == (tally{}) {
			delete(b.tallies, who)
		}
	}
	b.mu.Unlock()
	began := time.Now()
	seen, err := lookAround(ctx, b.db, b.config)
	seen.began = began

	b.mu.Lock()
	defer b.mu.Unlock()
	ended := time.Now()
	took := ended.Sub(began)
	b.looking, b.due = false, ended.Add(min(max(lookRest*took, calm), lookMax))
	if err != nil {
		return err
	}
	for lane, state := range seen.lanes {
		b.notePace(lane, state.depth, began.Sub(b.seen.began))
	}
	for _, t := range b.tallies {
		t.before = 0
	}
	b.drew.before = 0
	if seen.upTo < latest { // rows were copied without their sequence, which draws the same numbers again
		b.latest = seen.upTo
	}
	b.seen, b.took = seen, took
	b.until = b.due.Add(b.grace + 2*took)
	return nil
}

// age makes what was admitted so far part of what the coming look counts.
func (t *tally) age() { t.before, t.after = t.before+t.after, 0 }

// notePace notes how fast a lane was decided between the last look and this one.
func (b *backlog) notePace(lane string, depth int64, between time.Duration) {
	b.pace[lane] = 0
	if b.seen.lanes != nil && between < 2*lookMax {
		came := b.scaled(b.tally(owner{lane: lane}).before)
		b.pace[lane] = max(0, float64(b.seen.lanes[lane].depth+came-depth)/between.Seconds())
	}
}

// hashSQL has the look's transaction, which is its batch, count without sorting all that waits first: the planner expects
// few rows there. Nor is the plan worth compiling.
const hashSQL = `SELECT set_config('enable_sort', 'off', true), set_config('jit', 'off', true)`

const controlsSQL = `
SELECT lane, CASE WHEN window_started_at BETWEEN clock_timestamp() - interval '15 seconds' AND clock_timestamp() THEN rate ELSE 0 END,
       coalesce(rate_cap, 0), paused
FROM lane_slots
WHERE slot = -1`

// waitingSQL counts requests in isolated retry too, wherever the mark of their stream is. It reads each stream from its end back to its low-water mark, so that whatever the bound leaves out is the oldest
// and most likely finished. What was admitted to the normal lane for a variant that is moving is decided by its hot slot
// alone, and counts there: it says nothing of the normal lane.
const waitingSQL = `
WITH retried AS MATERIALIZED (
    SELECT tenant_id, variant_id, lane, slot, created_at
    FROM reservation_requests
    WHERE claim_expires_at IS NOT NULL
    LIMIT $1
)
SELECT stream.lane, stream.slot, stream.tenant_id, stream.depth,
       (sum(stream.depth) OVER (PARTITION BY stream.lane, stream.slot))::bigint AS stream_depth,
       extract(epoch FROM clock_timestamp() - min(stream.oldest) OVER (PARTITION BY stream.lane, stream.slot))::double precision AS oldest
FROM (
    SELECT CASE WHEN waiting.decider IS NULL THEN s.lane ELSE 'hot' END AS lane, coalesce(waiting.decider, s.slot) AS slot,
           waiting.tenant_id, sum(waiting.depth)::bigint AS depth, min(waiting.oldest) AS oldest
    FROM lane_slots s
    CROSS JOIN LATERAL (
        SELECT queued.tenant_id, queued.decider, count(*) AS depth, min(queued.created_at) AS oldest
        FROM (
            SELECT newest.tenant_id, newest.created_at,
                   CASE WHEN s.lane = 'normal' AND EXISTS (SELECT FROM hot_variants WHERE state <> 'hot')
                        THEN (SELECT h.slot
                              FROM hot_variants h
                              WHERE h.tenant_id = newest.tenant_id AND h.variant_id = newest.variant_id AND h.state <> 'hot') END AS decider
            FROM (
                (SELECT r.tenant_id, r.variant_id, r.created_at, r.status
                 FROM reservation_requests r
                 WHERE r.lane = s.lane AND r.slot = s.slot AND r.sequence > s.low_water
                 ORDER BY r.sequence DESC
                 LIMIT $1)
                UNION ALL
                (SELECT retried.tenant_id, retried.variant_id, retried.created_at, 'queued'
                 FROM retried
                 WHERE retried.lane = s.lane AND retried.slot = s.slot)
            ) newest
            WHERE newest.status = 'queued'
        ) queued
        GROUP BY queued.tenant_id, queued.decider
    ) waiting
    WHERE s.slot >= 0
    GROUP BY 1, 2, 3
) stream
ORDER BY stream.depth DESC
LIMIT $2`

// routesSQL tells which streams decide requests, other than the first of the normal lane: those for hot variants, on their
// way out too, and all others of a diverted tenant, whose variant is left empty.
const routesSQL = `
(SELECT tenant_id, variant_id, 'hot' AS lane, slot FROM hot_variants ORDER BY moved_at DESC LIMIT $1)
UNION ALL
(SELECT tenant_id, '', 'normal', slot FROM diverted_tenants ORDER BY diverted_at DESC LIMIT $1)`

const (
	// ownersMax is how many tenants' backlogs one look tells apart in all streams, the deepest.
	ownersMax = 10_000
	// routesMax is how many hot variants, and diverted tenants, are known by name, the newest. The others are judged as if
	// they were like most.
	routesMax = 10_000
)

// lookAround reads what waits in every stream, in one round trip.
func lookAround(ctx context.Context, db *pgxpool.Pool, config IntakeConfig) (picture, error) {
	p := picture{
		lanes: make(map[string]laneState), owners: make(map[owner]int64),
		streams: make(map[Wake]streamState), routes: make(map[routeRef]Wake),
	}
	b := &pgx.Batch{}
	b.Queue(hashSQL)
	b.Queue(DrawnSQL).QueryRow(func(row pgx.Row) error { return row.Scan(&p.upTo) }) // before the rows are counted
	b.Queue(controlsSQL).Query(func(rows pgx.Rows) error {
		var lane string
		var s laneState
		_, err := pgx.ForEachRow(rows, []any{&lane, &s.rate, &s.rateCap, &s.paused}, func() error { p.lanes[lane] = s; return nil })
		return err
	})
	b.Queue(waitingSQL, config.DepthMax+config.DepthMax/4+10_000, ownersMax).Query(p.readWaiting)
	b.Queue(routesSQL, routesMax).Query(func(rows pgx.Rows) error {
		var from routeRef
		var to Wake
		_, err := pgx.ForEachRow(rows, []any{&from.tenantID, &from.variantID, &to.Lane, &to.Slot}, func() error { p.routes[from] = to; return nil })
		return err
	})
	if err := db.SendBatch(ctx, b).Close(); err != nil {
		return picture{}, fmt.Errorf("look at what waits: %w", err)
	}
	return p, nil
}

func (p *picture) readWaiting(rows pgx.Rows) error {
	var who owner
	var stream Wake
	var depth, streamDepth int64
	var oldest float64
	_, err := pgx.ForEachRow(rows, []any{&stream.Lane, &stream.Slot, &who.tenant, &depth, &streamDepth, &oldest}, func() error {
		who.lane = stream.Lane
		lane, state := p.lanes[who.lane], streamState{oldest: time.Duration(oldest * float64(time.Second))}
		if _, known := p.streams[stream]; !known {
			lane.depth += streamDepth
		}
		if _, known := p.owners[who]; !known {
			lane.owners++
		}
		if depth == streamDepth {
			state.sole = who.tenant
		}
		p.owners[who] += depth
		p.lanes[who.lane], p.streams[stream] = lane, state
		return nil
	})
	return err
}
