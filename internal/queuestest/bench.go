package queuestest

import (
	"context"
	"log/slog"
	"math/rand/v2"
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
	"github.com/holdfast/holdfast/requests"
)

// NewLane makes a lane, as each process does.
type NewLane func(*pgxpool.Pool, *slog.Logger, queues.LaneConfig) (*queues.Lane, error)

// Bench is a database with one tenant, ready to admit.
type Bench struct {
	TB       testing.TB
	DB       *pgxpool.Pool
	Inserter *queues.WakeInserter
	Tenant   uuid.UUID
	Hot      bool
	// Decider decides the requests of callers that wait, in the intakes that
	// the bench makes. Nil: no direct decision.
	Decider *Decider

	make   NewLane
	path   Path
	intake *admission.Intake // for the requests whose callers wait
	random *rand.Rand
}

// New makes a bench for the lane of the given name.
func New(t testing.TB, lane lanes.Lane, newLane NewLane) *Bench {
	t.Helper()
	return On(t, pgtest.New(t), lane, newLane)
}

// On is New on a database that the test brings.
func On(t testing.TB, db *pgxpool.Pool, lane lanes.Lane, newLane NewLane) *Bench {
	t.Helper()
	inserter, err := queues.NewWakeInserter(db)
	if err != nil {
		t.Fatal(err)
	}
	return &Bench{TB: t, DB: db, Inserter: inserter, Tenant: uuid.New(), Hot: lane == lanes.Hot, make: newLane}
}

// With returns the bench with a separate pool, whose connections have the
// parameter set to the value.
func (b *Bench) With(parameter, value string) *Bench {
	b.TB.Helper()
	config := b.DB.Config()
	config.ConnConfig.RuntimeParams[parameter] = value
	with := *b
	var err error
	if with.DB, err = pgxpool.NewWithConfig(context.WithoutCancel(b.TB.Context()), config); err != nil {
		b.TB.Fatal(err)
	}
	b.TB.Cleanup(with.DB.Close)
	return &with
}

// Lane makes a lane of the bench's kind. Several lanes represent several
// processes.
func (b *Bench) Lane(config queues.LaneConfig) *queues.Lane {
	b.TB.Helper()
	return b.LoggedLane(slog.New(slog.DiscardHandler), config)
}

// LoggedLane is Lane with a log.
func (b *Bench) LoggedLane(log *slog.Logger, config queues.LaneConfig) *queues.Lane {
	b.TB.Helper()
	lane, err := b.make(b.DB, log, config)
	if err != nil {
		b.TB.Fatal(err)
	}
	return lane
}

// HotLane makes a hot lane, whatever lane the bench is for.
func (b *Bench) HotLane(config queues.LaneConfig) *queues.Lane {
	b.TB.Helper()
	lane, err := hot.NewLane(b.DB, slog.New(slog.DiscardHandler), config)
	if err != nil {
		b.TB.Fatal(err)
	}
	return lane
}

// Exec runs a statement.
func (b *Bench) Exec(sql string, args ...any) {
	b.TB.Helper()
	pgtest.Exec(b.TB, b.DB, sql, args...)
}

// Int runs a query that returns one number.
func (b *Bench) Int(sql string, args ...any) int64 {
	b.TB.Helper()
	return pgtest.Int(b.TB, b.DB, sql, args...)
}

// Stock makes a variant, in the bench's lane.
func (b *Bench) Stock(variant string, stock int) {
	b.TB.Helper()
	b.setStock(b.Tenant, variant, int64(stock))
	if b.Hot {
		if err := lanes.Pin(b.TB.Context(), b.DB, b.Inserter, b.Tenant, variant); err != nil {
			b.TB.Fatal(err)
		}
		if b.path != Queued {
			b.Settle(b.intake)
		}
	}
}

func (b *Bench) setStock(tenant uuid.UUID, variant string, stock int64) {
	b.TB.Helper()
	if _, err := inventory.Set(b.TB.Context(), b.DB, tenant, variant, inventory.StockPatch{Stock: &stock}, audit.Origin{Actor: audit.System()}); err != nil {
		b.TB.Fatal(err)
	}
}

// Submit admits one request.
func (b *Bench) Submit(cart, variant string, quantity int32) requests.Request {
	b.TB.Helper()
	return b.SubmitAs(requestrows.Submission{CartID: cart, VariantID: variant, Quantity: quantity})
}

// SubmitAs admits one request of the bench's tenant, by the path set with
// Decide.
func (b *Bench) SubmitAs(s requestrows.Submission) requests.Request {
	b.TB.Helper()
	if b.waits() {
		return b.SubmitDirect(b.intake, s).Request
	}
	return b.SubmitQueued(s)
}

// SubmitQueued admits one request of the bench's tenant, which a drain decides.
func (b *Bench) SubmitQueued(s requestrows.Submission) (r requests.Request) {
	b.TB.Helper()
	s.TenantID = b.Tenant
	err := pgx.BeginFunc(b.TB.Context(), b.DB, func(tx pgx.Tx) (err error) {
		r, err = admission.SubmitTx(b.TB.Context(), tx, b.Inserter, s)
		return err
	})
	if err != nil {
		b.TB.Fatal(err)
	}
	return r
}

// Intake runs an intake until the test ends, with the published load unless the
// test brings another.
func (b *Bench) Intake(config admission.IntakeConfig) *admission.Intake {
	b.TB.Helper()
	if b.Decider != nil && config.Decider == nil {
		config.Decider = b.Decider
	}
	if config.Load == nil {
		config.Load = queues.NewLoad(b.DB, config.DepthMax).Read
	}
	in, err := admission.NewIntake(b.DB, b.Inserter, config)
	if err != nil {
		b.TB.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = in.Run(ctx) })
	b.TB.Cleanup(func() { stop(); running.Wait() })
	return in
}

// Get reads a request.
func (b *Bench) Get(r requests.Request) requests.View {
	b.TB.Helper()
	v, err := requestrows.Get(b.TB.Context(), b.DB, b.Tenant, r.RequestID)
	if err != nil {
		b.TB.Fatal(err)
	}
	return v
}

// Mark is the low-water mark of a request's slot.
func (b *Bench) Mark(r requests.Request) int64 {
	b.TB.Helper()
	return b.Int(`SELECT low_water FROM lane_slots WHERE lane = $1 AND slot = $2`, r.Lane, r.Slot)
}

// Tick lets the lane drain until nothing is left.
func (b *Bench) Tick(lane *queues.Lane) (total queues.Report) {
	b.TB.Helper()
	for {
		report, err := lane.Tick(b.TB.Context())
		if err != nil {
			b.TB.Fatal(err)
		}
		total.Claimed += report.Claimed
		total.Held += report.Held
		total.Rejected += report.Rejected
		total.Retried += report.Retried
		if !report.More {
			return total
		}
	}
}

// Work runs ticks of each lane in a loop until stop is called. stop waits for
// their last ticks.
func (b *Bench) Work(served ...*queues.Lane) (stop func()) {
	stopped := make(chan struct{})
	var working sync.WaitGroup
	for _, lane := range served {
		working.Go(func() {
			pause := time.NewTicker(time.Millisecond)
			defer pause.Stop()
			for {
				if _, err := lane.Tick(b.TB.Context()); err != nil {
					b.TB.Error(err)
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
func (b *Bench) Run(served ...*queues.Lane) (stop func()) {
	b.TB.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(b.TB.Context()))
	var running sync.WaitGroup
	stop = sync.OnceFunc(func() { cancel(); running.Wait() })
	b.TB.Cleanup(stop)
	for _, lane := range served {
		running.Go(func() { _ = lane.Run(ctx) })
		b.Eventually("the lane runs", func() bool { return !lane.Ticked().IsZero() })
	}
	return stop
}

// Until ticks until the request is finished. One tick may not be enough: a
// terminated backend keeps its locks for a moment, and an isolated retry waits
// for its backoff.
func (b *Bench) Until(lane *queues.Lane, r requests.Request) {
	b.TB.Helper()
	pgtest.Until(b.TB, "the request is finished", func() bool {
		b.Tick(lane)
		return b.Get(r).Status.Finished()
	})
}

// Eventually waits until what returns true.
func (b *Bench) Eventually(why string, what func() bool) {
	b.TB.Helper()
	pgtest.Until(b.TB, why, what)
}

// Want fails the test unless the request has the status and the reason. A
// request that is done has no reason.
func (b *Bench) Want(r requests.Request, status requests.Status, reason requests.Reason) {
	b.TB.Helper()
	if v := b.Get(r); v.Status != status || v.Reason != reason {
		b.TB.Errorf("request of cart %s for %d × %s (sequence %d): %s %q, want %s %q",
			r.CartID, r.Quantity, r.VariantID, r.Sequence, v.Status, v.Reason, status, reason)
	}
}

// Sound fails the test unless the counters match the holds and no stock is
// oversold.
func (b *Bench) Sound() {
	b.TB.Helper()
	if n := b.Int(`
		SELECT count(*)
		FROM inventory_stocks s
		WHERE s.reserved <> (SELECT coalesce(sum(r.quantity), 0) FROM reservations r
		                     WHERE r.tenant_id = s.tenant_id AND r.resource_key = s.variant_id AND r.status = 'held')
		   OR s.reserved < 0 OR (s.reserved > s.stock AND NOT s.backorder AND s.tracked)`); n != 0 {
		b.TB.Errorf("%d variants whose counters disagree with their holds", n)
	}
	if n := b.Int(`
		SELECT count(*)
		FROM reservation_requests r
		LEFT JOIN reservations h ON h.tenant_id = r.tenant_id AND h.reservation_id = r.request_id
		WHERE (r.status = 'done') <> (h.reservation_id IS NOT NULL)`); n != 0 {
		b.TB.Errorf("%d requests that are done without a hold, or have one without being done", n)
	}
	if n := b.Int(`
		SELECT count(*)
		FROM reservations h
		WHERE (SELECT count(*) FROM audit_log a WHERE a.target_id = h.reservation_id AND a.action = 'reservation.held') <> 1
		   OR (SELECT count(*) FROM audit_log a WHERE a.target_id = h.reservation_id
		       AND a.action IN ('reservation.committed', 'reservation.released', 'reservation.expired')) <> (h.status <> 'held')::int`); n != 0 {
		b.TB.Errorf("%d holds without their one audit row for each transition", n)
	}
}

// InOrder fails the test if a request for one unit of the variant is held
// although it came after one that was rejected.
func (b *Bench) InOrder(variant string) {
	b.TB.Helper()
	if n := b.Int(`
		SELECT count(*)
		FROM reservation_requests granted
		WHERE granted.tenant_id = $1 AND granted.variant_id = $2 AND granted.status = 'done'
		  AND granted.sequence > (SELECT min(r.sequence) FROM reservation_requests r
		                          WHERE r.tenant_id = $1 AND r.variant_id = $2 AND r.reason = 'out_of_stock')`, b.Tenant, variant); n != 0 {
		b.TB.Errorf("%d requests for %s overtook one that was rejected", n, variant)
	}
}

// Begin opens a transaction. If it is still open when the test ends, it is
// rolled back.
func (b *Bench) Begin() pgx.Tx {
	b.TB.Helper()
	tx, err := b.DB.Begin(b.TB.Context())
	if err != nil {
		b.TB.Fatal(err)
	}
	b.TB.Cleanup(func() { _ = tx.Rollback(context.WithoutCancel(b.TB.Context())) })
	return tx
}

// AfterSnapshot runs verb in a transaction at the level. The transaction takes
// its snapshot before meanwhile is called. AfterSnapshot commits it, and
// returns verb's error.
func (b *Bench) AfterSnapshot(level pgx.TxIsoLevel, meanwhile func(), verb func(tx pgx.Tx) error) error {
	b.TB.Helper()
	tx, err := b.DB.BeginTx(b.TB.Context(), pgx.TxOptions{IsoLevel: level})
	if err != nil {
		b.TB.Fatal(err)
	}
	defer func() { _ = tx.Rollback(b.TB.Context()) }()
	if _, err := tx.Exec(b.TB.Context(), `SELECT 1`); err != nil {
		b.TB.Fatal(err)
	}
	meanwhile()
	verbErr := verb(tx)
	if err := tx.Commit(b.TB.Context()); err != nil && verbErr == nil {
		b.TB.Errorf("%s: commit: %v", level, err)
	}
	return verbErr
}

// Locked is a transaction that has locks until Release or the end of the test.
type Locked struct {
	pgx.Tx
	b *Bench
}

// Lock runs a statement that takes locks, in a separate transaction.
func (b *Bench) Lock(sql string, args ...any) Locked {
	b.TB.Helper()
	tx := b.Begin()
	if _, err := tx.Exec(b.TB.Context(), sql, args...); err != nil {
		b.TB.Fatalf("%s: %v", sql, err)
	}
	return Locked{tx, b}
}

// Release rolls the transaction back.
func (l Locked) Release() {
	l.b.TB.Helper()
	if err := l.Rollback(l.b.TB.Context()); err != nil {
		l.b.TB.Fatalf("release a lock: %v", err)
	}
}

// LockStock is Lock for the stock of a variant.
func (b *Bench) LockStock(variant string) Locked {
	b.TB.Helper()
	return b.Lock(`SELECT FROM inventory_stocks WHERE tenant_id = $1 AND variant_id = $2 FOR UPDATE`, b.Tenant, variant)
}

// Blocked waits until a session of the bench's database waits for a lock.
func (b *Bench) Blocked() {
	b.TB.Helper()
	pgtest.UntilBlocked(b.TB, b.DB, 1)
}
