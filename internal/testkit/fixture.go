package testkit

import (
	"context"
	"flag"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/admission"
	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/internal/lanes"
	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/internal/queues"
	"github.com/holdfast/holdfast/internal/requestrows"
	"github.com/holdfast/holdfast/queues/hot"
	"github.com/holdfast/holdfast/queues/normal"
	"github.com/holdfast/holdfast/requests"
)

var (
	firstSeed = flag.Uint64("seed", 1, "the first seed of the tests that draw at random")
	moreSeeds = flag.Int("seeds", 0, "how many seeds those tests try; 0 for as many as each has by default")
)

// Seeds returns the seeds for a test that draws at random. There are n of them,
// or as many as the flag -seeds sets, from -seed on.
func Seeds(n int) []uint64 {
	if *moreSeeds > 0 {
		n = *moreSeeds
	}
	seeds := make([]uint64, n)
	for i := range seeds {
		seeds[i] = *firstSeed + uint64(i)
	}
	return seeds
}

// Fixture is a database with one tenant, ready to admit.
type Fixture struct {
	pgtest.Fixture
	Inserter *queues.WakeInserter
	Tenant   uuid.UUID
	// Hot means that the fixture's variants and lanes are hot.
	Hot bool
	// Log is the log of the lanes that the fixture makes.
	Log *slog.Logger
	// Decider decides the requests of callers that wait, in the intakes that
	// the fixture makes. Nil: no direct decision.
	Decider *Decider
}

// New makes a fixture whose variants are in the lane.
func New(t testing.TB, lane lanes.Lane) *Fixture {
	t.Helper()
	return On(t, pgtest.New(t), lane)
}

// On is New on a database that the test brings.
func On(t testing.TB, db *pgxpool.Pool, lane lanes.Lane) *Fixture {
	t.Helper()
	inserter, err := queues.NewWakeInserter(db)
	pgtest.Must(t, err)
	return &Fixture{
		Fixture: pgtest.Fixture{TB: t, DB: db}, Inserter: inserter, Tenant: uuid.New(), Hot: lane == lanes.Hot,
		Log: slog.New(slog.DiscardHandler),
	}
}

// With returns the fixture with a separate pool, whose connections have the
// parameter set to the value.
func (f *Fixture) With(parameter, value string) *Fixture {
	f.TB.Helper()
	config := f.DB.Config()
	config.ConnConfig.RuntimeParams[parameter] = value
	with := *f
	var err error
	with.DB, err = pgxpool.NewWithConfig(context.WithoutCancel(f.TB.Context()), config)
	f.Must(err)
	f.TB.Cleanup(with.DB.Close)
	return &with
}

// Lane makes a lane of the fixture's kind. Several lanes represent several
// processes.
func (f *Fixture) Lane(config queues.LaneConfig) *queues.Lane {
	f.TB.Helper()
	if f.Hot {
		return f.HotLane(config)
	}
	lane, err := normal.NewLane(f.DB, f.Log, config)
	f.Must(err)
	return lane
}

// HotLane makes a hot lane, whatever lane the fixture is for.
func (f *Fixture) HotLane(config queues.LaneConfig) *queues.Lane {
	f.TB.Helper()
	lane, err := hot.NewLane(f.DB, f.Log, config)
	f.Must(err)
	return lane
}

// Stock makes a variant, in the fixture's lane.
func (f *Fixture) Stock(variant string, stock int) {
	f.TB.Helper()
	f.setStock(f.Tenant, variant, int64(stock))
	if f.Hot {
		f.Pin(variant)
	}
}

// Pin makes a variant hot.
func (f *Fixture) Pin(variant string) {
	f.TB.Helper()
	f.Must(lanes.Pin(f.TB.Context(), f.DB, f.Inserter, f.Tenant, variant))
}

func (f *Fixture) setStock(tenant uuid.UUID, variant string, stock int64) {
	f.TB.Helper()
	_, err := inventory.Set(f.TB.Context(), f.DB, tenant, variant, inventory.StockPatch{Stock: &stock}, audit.Origin{Actor: audit.System()})
	f.Must(err)
}

// Submit admits one request, which a drain decides.
func (f *Fixture) Submit(cart, variant string, quantity int32) requests.Request {
	f.TB.Helper()
	return f.SubmitAs(requestrows.Submission{CartID: cart, VariantID: variant, Quantity: quantity})
}

// SubmitAs admits one request of the fixture's tenant, which a drain decides.
func (f *Fixture) SubmitAs(s requestrows.Submission) (r requests.Request) {
	f.TB.Helper()
	s.TenantID = f.Tenant
	f.Must(pgx.BeginFunc(f.TB.Context(), f.DB, func(tx pgx.Tx) (err error) {
		r, err = admission.SubmitTx(f.TB.Context(), tx, f.Inserter, s)
		return err
	}))
	return r
}

// Open begins an admission of one shoe to the cart. It returns the request and
// a function that commits it. If the function is not called, the admission is
// rolled back when the test ends.
func (f *Fixture) Open(cart string) (r requests.Request, commit func()) {
	f.TB.Helper()
	tx := f.Begin()
	r, err := admission.SubmitTx(f.TB.Context(), tx, f.Inserter, requestrows.Submission{TenantID: f.Tenant, CartID: cart, VariantID: "shoe", Quantity: 1})
	f.Must(err)
	return r, func() {
		f.TB.Helper()
		f.Must(tx.Commit(f.TB.Context()))
	}
}

// Intake runs an intake until the test ends, with the published load unless the
// test brings another.
func (f *Fixture) Intake(config admission.IntakeConfig) *admission.Intake {
	f.TB.Helper()
	if f.Decider != nil && config.Decider == nil {
		config.Decider = f.Decider
	}
	if config.Load == nil {
		config.Load = queues.NewLoad(f.DB).Read
	}
	in, err := admission.NewIntake(f.DB, f.Inserter, config)
	f.Must(err)
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = in.Run(ctx) })
	f.TB.Cleanup(func() { stop(); running.Wait() })
	return in
}

// Get reads a request.
func (f *Fixture) Get(r requests.Request) requests.View {
	f.TB.Helper()
	v, err := requestrows.Get(f.TB.Context(), f.DB, f.Tenant, r.RequestID)
	f.Must(err)
	return v
}

// Mark is the low-water mark of a request's slot.
func (f *Fixture) Mark(r requests.Request) int64 {
	f.TB.Helper()
	return f.Int(`SELECT low_water FROM lane_slots WHERE lane = $1 AND slot = $2`, r.Lane, r.Slot)
}

// Lapse makes all holds an hour older, so that they are due.
func (f *Fixture) Lapse() {
	f.TB.Helper()
	f.Exec(`UPDATE reservations SET first_held_at = first_held_at - interval '1 hour', held_at = held_at - interval '1 hour', expires_at = expires_at - interval '1 hour'`)
}

// Poison makes every hold of the cart "bad" fail, so its request fails in any
// batch.
func (f *Fixture) Poison() {
	f.TB.Helper()
	f.Exec(`ALTER TABLE reservations ADD CONSTRAINT poison CHECK (holder_id <> 'bad')`)
}

// Tick lets the lane drain until nothing is left.
func (f *Fixture) Tick(lane *queues.Lane) (total queues.Report) {
	f.TB.Helper()
	for {
		report, err := lane.Tick(f.TB.Context())
		f.Must(err)
		total.Claimed += report.Claimed
		total.Held += report.Held
		total.Rejected += report.Rejected
		total.Retried += report.Retried
		if !report.More {
			return total
		}
	}
}

// TickUntil ticks until the request is finished. One tick may not be enough: a
// terminated backend keeps its locks for a moment, and an isolated retry waits
// for its backoff.
func (f *Fixture) TickUntil(lane *queues.Lane, r requests.Request) {
	f.TB.Helper()
	f.Until("the request is finished", func() bool {
		f.Tick(lane)
		return f.Get(r).Status.Finished()
	})
}

// Work runs ticks of each lane in a loop until stop is called. stop waits for
// their last ticks.
func (f *Fixture) Work(served ...*queues.Lane) (stop func()) {
	stopped := make(chan struct{})
	var working sync.WaitGroup
	for _, lane := range served {
		working.Go(func() {
			pause := time.NewTicker(time.Millisecond)
			defer pause.Stop()
			for {
				if _, err := lane.Tick(f.TB.Context()); err != nil {
					f.TB.Error(err)
				}
				select {
				case <-stopped:
					return
				case <-pause.C:
				}
			}
		})
	}
	return sync.OnceFunc(func() { close(stopped); working.Wait() })
}

// Run runs the lanes until stop is called or the test ends. stop waits until
// they have ended. Run returns once they run.
func (f *Fixture) Run(served ...*queues.Lane) (stop func()) {
	f.TB.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(f.TB.Context()))
	var running sync.WaitGroup
	stop = sync.OnceFunc(func() { cancel(); running.Wait() })
	f.TB.Cleanup(stop)
	for _, lane := range served {
		running.Go(func() { _ = lane.Run(ctx) })
		f.Until("the lane runs", func() bool { return !lane.Ticked().IsZero() })
	}
	return stop
}

// LockStock is Lock for the stock of a variant.
func (f *Fixture) LockStock(variant string) pgtest.Locked {
	f.TB.Helper()
	return f.Lock(`SELECT FROM inventory_stocks WHERE tenant_id = $1 AND variant_id = $2 FOR UPDATE`, f.Tenant, variant)
}

// AfterSnapshot runs verb in a transaction at the level. The transaction takes
// its snapshot before meanwhile is called. AfterSnapshot commits it, and
// returns verb's error.
func (f *Fixture) AfterSnapshot(level pgx.TxIsoLevel, meanwhile func(), verb func(tx pgx.Tx) error) error {
	f.TB.Helper()
	tx, err := f.DB.BeginTx(f.TB.Context(), pgx.TxOptions{IsoLevel: level})
	f.Must(err)
	defer func() { _ = tx.Rollback(f.TB.Context()) }()
	_, err = tx.Exec(f.TB.Context(), `SELECT 1`)
	f.Must(err)
	meanwhile()
	verbErr := verb(tx)
	if err := tx.Commit(f.TB.Context()); err != nil && verbErr == nil {
		f.TB.Errorf("%s: commit: %v", level, err)
	}
	return verbErr
}

// Want fails the test unless the request has the status and the reason. A
// request that is done has no reason.
func (f *Fixture) Want(r requests.Request, status requests.Status, reason requests.Reason) {
	f.TB.Helper()
	if v := f.Get(r); v.Status != status || v.Reason != reason {
		f.TB.Errorf("request of cart %s for %d × %s (sequence %d): %s %q, want %s %q",
			r.CartID, r.Quantity, r.VariantID, r.Sequence, v.Status, v.Reason, status, reason)
	}
}

// invariants are queries that count the rows of a violation, by its name.
var invariants = map[string]string{
	"variants whose counters disagree with their holds, or that are oversold": `
		SELECT count(*)
		FROM inventory_stocks s
		WHERE s.reserved <> (SELECT coalesce(sum(r.quantity), 0) FROM reservations r
		                     WHERE r.tenant_id = s.tenant_id AND r.resource_key = s.variant_id AND r.status = 'held')
		   OR s.reserved < 0 OR (s.reserved > s.stock + coalesce(s.preorder_max, 0) AND NOT (s.backorder AND s.preorder_max IS NULL) AND s.tracked)`,
	"requests that are done without a hold, or have one without being done": `
		SELECT count(*)
		FROM reservation_requests r
		LEFT JOIN reservations h ON h.tenant_id = r.tenant_id AND h.reservation_id = r.request_id
		LEFT JOIN inventory_stocks s ON s.tenant_id = r.tenant_id AND s.variant_id = r.variant_id
		WHERE r.kind <> 'lines' AND (r.status = 'done') <> (h.reservation_id IS NOT NULL) AND s.tracked IS NOT FALSE`,
	"requests of several lines that are done without a line, or failed with a hold, or whose open parts are miscounted": `
		SELECT count(*)
		FROM reservation_requests r
		CROSS JOIN LATERAL (
		    SELECT count(*) FILTER (WHERE p.status IN ('queued', 'processing')) AS open,
		           count(*) FILTER (WHERE h.status = 'held') AS held, count(*) FILTER (WHERE p.status = 'done') AS made
		    FROM reservation_requests p
		    LEFT JOIN reservations h ON h.tenant_id = p.tenant_id AND h.reservation_id = p.request_id
		    WHERE p.tenant_id = r.tenant_id AND p.parent_id = r.request_id
		) parts
		WHERE r.kind = 'lines' AND (parts.open <> coalesce(r.open_parts, 0) OR r.status = 'done' AND parts.made = 0
		                            OR r.status = 'failed' AND parts.held > 0)`,
	"requests that wait without a place in line, or have one without waiting": `
		SELECT count(*)
		FROM (SELECT r.request_id FROM reservation_requests r WHERE r.status = 'waiting') r
		FULL JOIN waiting_requests w ON w.request_id = r.request_id
		LEFT JOIN inventory_stocks s ON s.tenant_id = w.tenant_id AND s.variant_id = w.variant_id
		WHERE r.request_id IS NULL OR w.request_id IS NULL OR NOT s.waiting`,
	"holds without their one audit row for each transition": `
		SELECT count(*)
		FROM reservations h
		WHERE (SELECT count(*) FROM audit_log a WHERE a.target_id = h.reservation_id AND a.action = 'reservation.held') <> 1
		   OR (SELECT count(*) FROM audit_log a WHERE a.target_id = h.reservation_id
		       AND a.action IN ('reservation.committed', 'reservation.released', 'reservation.expired')) <> (h.status <> 'held')::int`,
}

// CheckInvariants fails the test unless the counters match the holds, no stock
// is oversold, and every transition is recorded once.
func (f *Fixture) CheckInvariants() {
	f.TB.Helper()
	for what, sql := range invariants {
		if n := f.Int(sql); n != 0 {
			f.TB.Errorf("%d %s", n, what)
		}
	}
}

// CheckOrder fails the test if a request for one unit of the variant is held
// although it came after one that was rejected.
func (f *Fixture) CheckOrder(variant string) {
	f.TB.Helper()
	if n := f.Int(`
		SELECT count(*)
		FROM reservation_requests granted
		WHERE granted.tenant_id = $1 AND granted.variant_id = $2 AND granted.status = 'done'
		  AND granted.sequence > (SELECT min(r.sequence) FROM reservation_requests r
		                          WHERE r.tenant_id = $1 AND r.variant_id = $2 AND r.reason = 'out_of_stock')`, f.Tenant, variant); n != 0 {
		f.TB.Errorf("%d requests for %s overtook one that was rejected", n, variant)
	}
}
