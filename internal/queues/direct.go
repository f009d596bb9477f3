package queues

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/internal/lanes"
	"github.com/holdfast/holdfast/internal/requestrows"
	"github.com/holdfast/holdfast/internal/sleep"
	"github.com/holdfast/holdfast/requests"
	"github.com/holdfast/holdfast/reservations"
)

// Direct decides requests in the transaction that admits them, before it inserts
// them, if no queued request precedes them. It takes no lease. A request that was
// accepted before another one was sent is visible to that one's transaction. If
// it is still queued, the other one is queued behind it; otherwise it is decided
// already. A request that is accepted after the check was sent before the other
// one was accepted, so either order of the two is right.
//
// If two transactions decide for one variant concurrently, the second waits for
// the stock for at most StockWait, and holds no lock that a decision or a drain
// waits for. A group of several variants does not wait: requests whose stocks
// are locked stay queued.
type Direct struct {
	lanes map[lanes.Lane]*directLane
}

// directLane decides for one lane.
type directLane struct {
	decider
	began   time.Time
	expired atomic.Int64 // when due holds were last searched for, in nanoseconds since began
}

// expireEvery is how often the decisions of a lane expire due holds whose units
// they do not need.
const expireEvery = 20 * time.Millisecond

// endsDue reports whether the next decision expires further due holds: once in
// expireEvery.
func (l *directLane) endsDue() bool {
	now, last := time.Since(l.began).Nanoseconds(), l.expired.Load()
	return l.traits.endsDue && now-last >= int64(expireEvery) && l.expired.CompareAndSwap(last, now)
}

// NewDirect makes a Direct. Run makes it report its rate. Only Terms, AgeMax
// and StockWait of config are used.
func NewDirect(db *pgxpool.Pool, log *slog.Logger, config DrainConfig) (*Direct, error) {
	config, err := config.withDefaults()
	if err != nil {
		return nil, err
	}
	d := &Direct{lanes: make(map[lanes.Lane]*directLane)}
	for _, lane := range lanes.All() {
		d.lanes[lane] = &directLane{
			decider: decider{db: db, lane: lane, traits: traitsOf[lane], config: config, log: log.With("lane", lane)}, began: time.Now(),
		}
	}
	return d, nil
}

// clearHotSQL and clearNormalSQL return the streams of new requests for the
// variants $1, $2 that are clear, with the places of their variants in the lane.
// In a clear stream no request is queued, there is no pause and no rate cap, and
// the sequence is not behind the mark. A variant that moves between the lanes is
// left out, and so is the hot stream in which one moves. A normal stream is clear
// if no other one has a queued request of the carts $4, $5.
//
// A stream with more than $3 requests above its mark is not clear. That happens
// while an admission holds the mark back, and the statement must not read all
// of them for each group. Only the group's own streams are read: they are
// materialized first. The carts are looked up one by one, and only if another
// stream has a queued request.
const (
	clearHotSQL = `
WITH s AS MATERIALIZED (
    SELECT s.lane, s.slot, s.low_water, ARRAY[a.place] AS places
    FROM unnest($1::uuid[], $2::text[]) WITH ORDINALITY AS a (tenant_id, variant_id, place)
    JOIN hot_variants h ON h.tenant_id = a.tenant_id AND h.variant_id = a.variant_id
    JOIN lane_slots s ON s.lane = 'hot' AND s.slot = h.slot` + controlled + `
)
SELECT s.slot, s.low_water, s.places
FROM s
WHERE NOT EXISTS (SELECT FROM hot_variants h WHERE h.slot = s.slot AND h.state <> 'hot')` + noneQueued

	clearNormalSQL = `
WITH own AS MATERIALIZED (
    SELECT a.tenant_id, a.place, ` + lanes.NormalSlot + ` AS slot
    FROM unnest($1::uuid[], $2::text[]) WITH ORDINALITY AS a (tenant_id, variant_id, place)
    WHERE NOT EXISTS (SELECT FROM hot_variants h WHERE h.tenant_id = a.tenant_id AND h.variant_id = a.variant_id)
), s AS MATERIALIZED (
    SELECT s.lane, s.slot, s.low_water, array_agg(own.place) AS places
    FROM own
    JOIN lane_slots s ON s.lane = 'normal' AND s.slot = own.slot` + controlled + `
    GROUP BY s.lane, s.slot, s.low_water
)
SELECT s.slot, s.low_water, s.places
FROM s
WHERE CASE WHEN EXISTS (
               SELECT
               FROM ` + lanes.ParallelSlots + ` parallel
               CROSS JOIN LATERAL (SELECT
                                   FROM (SELECT r.status, row_number() OVER (ORDER BY r.sequence) AS place
                                         FROM reservation_requests r
                                         WHERE r.lane = parallel.lane AND r.slot = parallel.slot AND r.sequence > ` + lanes.ParallelMark + `
                                         ORDER BY r.sequence
                                         LIMIT $3::integer + 1) unmarked
                                   WHERE unmarked.status = 'queued' OR unmarked.place > $3
                                   LIMIT 1) waiting
               WHERE (parallel.lane, parallel.slot) <> (s.lane, s.slot))
      THEN NOT EXISTS (
               SELECT
               FROM unnest($4::uuid[], $5::text[]) AS cart (tenant_id, cart_id)
               CROSS JOIN LATERAL (SELECT FROM reservation_requests r
                                   WHERE same_holder(r.tenant_id, r.cart_id, cart.tenant_id, cart.cart_id)
                                     AND r.sequence > (SELECT min(` + lanes.ParallelMark + `) FROM ` + lanes.ParallelSlots + ` parallel)
                                     AND r.status = 'queued' AND (r.lane, r.slot) <> (s.lane, s.slot) AND r.lane <> 'hot'
                                   LIMIT 1) waiting
               WHERE EXISTS (SELECT FROM own WHERE own.tenant_id = cart.tenant_id AND own.slot = s.slot))
      ELSE true END` + noneQueued

	controlled = `
    JOIN ` + lanes.Controls + ` control ON control.lane = s.lane
    WHERE NOT control.paused AND control.rate_cap IS NULL AND s.low_water <= (` + lanes.DrawnSQL + `)`

	noneQueued = `
  AND NOT EXISTS (SELECT
                  FROM (SELECT r.status, row_number() OVER (ORDER BY r.sequence) AS place
                        FROM reservation_requests r
                        WHERE r.lane = s.lane AND r.slot = s.slot AND r.sequence > s.low_water
                        ORDER BY r.sequence
                        LIMIT $3::integer + 1) unmarked
                  WHERE unmarked.status = 'queued' OR unmarked.place > $3)`
)

// unmarkedMax is how many requests a clear stream may have above its mark. The
// marks move long before, unless an admission holds them back.
const unmarkedMax = 5000

// Decision is the decision of one group.
type Decision interface {
	// DecideTx decides the requests, which are all of the group and which tx
	// has not inserted yet, in their order. It adds the writes to b, except the
	// rows of the requests. It returns the requests that were decided, as they
	// are once they are inserted, without a sequence number and a stream. The
	// others are to be queued: a queued request precedes them, the lane is
	// paused or capped, another transaction has locked their stocks, or their
	// variant is not tracked.
	//
	// The transaction must be READ COMMITTED, which the admission has checked.
	DecideTx(ctx context.Context, tx pgx.Tx, b *pgx.Batch, group []requests.Request) ([]requests.View, error)
	// Committed counts what was decided, once the transaction is committed.
	Committed(ctx context.Context)
}

// directDecision is the decision of one group.
type directDecision struct {
	lane    *directLane
	locking *inventory.Locking
	clear   map[inventory.Ref]bool // variants whose stream is clear
	marks   map[int16]int64        // of the clear streams
	horizon *lanes.Horizon         // if the marks are to be moved, else nil
	report  Report
}

// markEvery is how many requests are decided, on average and over all
// processes, until a decision moves the mark of their stream. Until then later
// decisions read past them.
const markEvery = 100

// Queue adds to b the statements that check whether the group may be decided
// now, and lock the stocks that are free.
func (d *Direct) Queue(b *pgx.Batch, lane lanes.Lane, group []requestrows.Submission) Decision {
	dd := &directDecision{lane: d.lanes[lane], clear: make(map[inventory.Ref]bool), marks: make(map[int16]int64)}
	var variants []inventory.HoldRequest
	var variantTenants [][16]byte
	var variantIDs []string
	tenants, carts := make([][16]byte, len(group)), make([]string, len(group))
	for i := range group {
		s := &group[i]
		tenants[i], carts[i] = s.TenantID, s.CartID
		ref := inventory.Ref{TenantID: s.TenantID, VariantID: s.VariantID}
		if _, seen := dd.clear[ref]; !seen {
			dd.clear[ref] = false
			variants = append(variants, inventory.HoldRequest{TenantID: s.TenantID, VariantID: s.VariantID})
			variantTenants, variantIDs = append(variantTenants, s.TenantID), append(variantIDs, s.VariantID)
		}
	}
	sql, args := clearHotSQL, []any{variantTenants, variantIDs, unmarkedMax}
	if lane != lanes.Hot {
		sql, args = clearNormalSQL, append(args, tenants, carts)
	}
	b.Queue(sql, args...).Query(func(rows pgx.Rows) error {
		var slot int16
		var mark int64
		var places []int64
		_, err := pgx.ForEachRow(rows, []any{&slot, &mark, &places}, func() error {
			dd.marks[slot] = mark
			for _, place := range places {
				dd.clear[inventory.Ref{TenantID: variants[place-1].TenantID, VariantID: variants[place-1].VariantID}] = true
			}
			return nil
		})
		return err
	})
	if rand.N(markEvery) < len(group) { //nolint:gosec // it only spreads the moves
		dd.horizon = new(lanes.Horizon)
		lanes.QueueHorizon(b, dd.horizon)
	}
	dd.locking = inventory.QueueLocking(b, variants, dd.lane.config.Terms, dd.lane.endsDue())
	return dd
}

// DecideTx decides those of the requests whose stream is clear and whose stock
// is locked. The transaction must be READ COMMITTED, which the admission has
// checked.
func (dd *directDecision) DecideTx(ctx context.Context, tx pgx.Tx, b *pgx.Batch, group []requests.Request) (views []requests.View, err error) {
	unclear := func(r requests.Request) bool {
		return !dd.clear[variantOf(&r)] || r.Lines != nil || r.Kind == requests.Wait
	}
	first := slices.DeleteFunc(slices.Clone(group), unclear)
	if len(first) == 0 {
		return nil, nil
	}
	if err := dd.locking.WaitTx(ctx, tx, dd.lane.config.StockWait); err != nil {
		return nil, err
	}
	// the insert decides these, whatever is queued
	first = slices.DeleteFunc(first, func(r requests.Request) bool { return r.Kind != requests.Set && dd.locking.Untracked(variantOf(&r)) })
	if len(first) == 0 {
		return nil, nil
	}
	hold := func(ctx context.Context, tx pgx.Tx, asks []inventory.HoldRequest, _ inventory.Terms) (*inventory.Holding, error) {
		return dd.locking.HoldTx(ctx, tx, asks)
	}
	decided, err := dd.lane.decide(ctx, tx, b, first, dd.locking.Now(), hold, requestrows.QueueFailures, &dd.report)
	if err != nil || len(decided) == 0 {
		return nil, err
	}
	dd.moveMarks(b)
	return dd.report.outcomes.views(), nil
}

// moveMarks adds to b the statements that move the marks of the streams, if it
// is their turn. It waits for no slot, and leaves a mark that a drain is moving.
func (dd *directDecision) moveMarks(b *pgx.Batch) {
	if dd.horizon == nil {
		return
	}
	for slot, mark := range dd.marks {
		stream := lanes.Stream{Lane: dd.lane.lane, Slot: slot}
		queueMark(b, &Lease{Lease: lanes.Lease{Stream: stream, LowWater: mark, Horizon: *dd.horizon}}, &Claim{})
	}
}

// views returns the decided requests as they are once the decision is written.
func (o *outcomes) views() []requests.View {
	made := make(map[requestrows.Ref]*reservations.Reservation, len(o.decided))
	for _, r := range o.holding.Made() {
		made[requestrows.Ref{TenantID: r.TenantID, RequestID: r.ReservationID}] = &r
	}
	views := make([]requests.View, len(o.decided))
	for i, r := range o.decided {
		r.Status, r.Reason, r.UpdatedAt = requests.Done, o.reasons[i], o.holding.Now
		if r.Reason != "" {
			r.Status = requests.Failed
		}
		views[i] = requests.View{Request: r, Reservation: made[requestrows.RefOf(&r)]}
	}
	return views
}

// Committed counts what was decided.
func (dd *directDecision) Committed(ctx context.Context) {
	d := dd.lane
	d.decided.Add(int64(dd.report.Claimed))
	d.count(ctx, dd.report.outcomes)
}

// Run adds the number of decided requests to the lanes' measured rates, until
// ctx ends.
func (d *Direct) Run(ctx context.Context) error {
	for sleep.For(ctx, time.Second) == nil {
		for _, lane := range d.lanes {
			if err := lane.recordRate(ctx); err != nil && ctx.Err() == nil {
				lane.log.WarnContext(ctx, "the rate of direct decisions was not recorded", "error", err)
			}
		}
	}
	return nil
}
