package projections

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/pg"
	"github.com/holdfast/holdfast/internal/telemetry"
)

// subscription is the name of the audit subscription of a Feed.
const subscription = "projections"

// Feed reads the audit log and folds its records into the projections that are
// registered with it. Any number of processes may run one: a lease makes one of
// them deliver at a time, and another one takes over when it dies. All of them
// must have the same projections.
type Feed struct {
	db     *pgxpool.Pool
	config Config
	out    *sender

	mu         sync.Mutex
	registered []registered

	running sync.Mutex          // held by RunOnce
	once    *audit.Subscription // of RunOnce, nil before the first
}

// registered is a Runtime, whatever its types.
type registered interface {
	name() string
	// collect groups the events of the records by key. decoded contains the
	// events of each Source that was decoded already.
	collect(records []audit.Record, decoded map[any]any) batch
	rebuildKeys(ctx context.Context, only *Key) (int, error)
}

// batch is the events of one projection in a delivery.
type batch interface {
	keys() []Key
	// refused counts the events without a key, and returns the first error.
	refused() (int, error)
	// fold folds the events of the ith key from the given one on, at most a
	// snapshot interval of them. next is 0 after the last.
	fold(i, from int, at row) (f folded, next int)
}

// NewFeed makes a feed without projections.
func NewFeed(db *pgxpool.Pool, c Config) (*Feed, error) {
	c, err := c.withDefaults(db)
	if err != nil {
		return nil, err
	}
	return &Feed{db: db, config: c, out: newSender(c.Send, c.Log)}, nil
}

// Register adds the runtime to the feed, once: a second call does nothing. The
// feed sends the frames of what it folds with its own Config.
//
// Errors: the projection has no Source; its name, or the beginning of its name
// up to a dot, is that of another projection of the feed.
func (r *Runtime[E, S, D]) Register(f *Feed) error {
	if r.p.Source == nil || r.p.Source.Decode == nil {
		return fmt.Errorf("projection: %s has no Source", r.p.Name)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, other := range f.registered {
		name := other.name()
		switch {
		case other == registered(r):
			return nil
		case name == r.p.Name, strings.HasPrefix(name, r.p.Name+"."), strings.HasPrefix(r.p.Name, name+"."):
			return fmt.Errorf("projection: %s and %s share channels", name, r.p.Name)
		}
	}
	f.registered = append(f.registered, r)
	return nil
}

func (r *Runtime[E, S, D]) name() string { return r.p.Name }

// names returns the names of the projections that are registered.
func (f *Feed) names() []string {
	var names []string
	for _, r := range f.all() {
		names = append(names, r.name())
	}
	return names
}

func (f *Feed) all() []registered {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]registered(nil), f.registered...)
}

// Run folds what is recorded until ctx ends. A new feed begins with the oldest
// record. A projection that is registered later begins at the feed's position,
// until RebuildFromRecord: Run logs a warning. It returns
// audit.ErrNoSubscription once the subscription was removed, and an error if it
// cannot begin.
func (f *Feed) Run(ctx context.Context) error {
	sub, err := f.subscribe(ctx)
	if err != nil {
		return err
	}
	f.warnOfNew(ctx)
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTimeout)
		defer cancel()
		f.out.flush(ctx, true)
	}()
	return sub.Run(ctx, f.deliver, func(err error) {
		f.config.Log.WarnContext(ctx, "a delivery to the projections failed", "error", err)
	})
}

// RunOnce folds the next delivery, if there is one and no other process runs
// the feed. It keeps the lease until that runs out.
func (f *Feed) RunOnce(ctx context.Context) (_ audit.TailReport, err error) {
	f.running.Lock()
	defer f.running.Unlock()
	if f.once == nil {
		if f.once, err = f.subscribe(ctx); err != nil {
			return audit.TailReport{}, err
		}
	}
	return f.once.RunOnce(ctx, f.handle)
}

// work is one key of one projection in a delivery.
type work struct {
	place
	batch batch
	at    int // the key's index in the batch
}

// handle folds a delivery: all its states and the subscription's position are
// written in one transaction. A failed broadcast is logged, and the feed
// continues.
func (f *Feed) handle(ctx context.Context, d *audit.Delivery) error {
	all := f.collect(ctx, d.Records)
	if len(all) == 0 {
		return nil
	}
	results, err := f.write(ctx, d, all, f.foldAll)
	if pg.IsData(err) && !errors.Is(err, audit.ErrLeaseLost) {
		results, err = f.write(ctx, d, all, f.foldEach)
	}
	if err != nil {
		return failed("fold a delivery", err)
	}
	var messages []message
	for i := range results {
		f.report(ctx, &all[i], &results[i])
		messages = append(messages, results[i].messages...)
	}
	if err := f.out.send(ctx, messages); err != nil && ctx.Err() == nil {
		f.config.Log.WarnContext(ctx, "frames were not sent", "frames", len(messages), "error", err)
	}
	return nil
}

// collect groups the events of the records by projection and key, in the order
// of the locks.
func (f *Feed) collect(ctx context.Context, records []audit.Record) (all []work) {
	decoded := make(map[any]any)
	for _, r := range f.all() {
		b := r.collect(records, decoded)
		if n, err := b.refused(); n > 0 {
			telemetry.ProjectionSkipped(ctx, r.name(), n)
			f.config.Log.ErrorContext(ctx, "events without a valid key were left out", "projection", r.name(), "events", n, "error", err)
		}
		for i, key := range b.keys() {
			all = append(all, work{place{r.name(), key}, b, i})
		}
	}
	slices.SortFunc(all, func(a, b work) int { return a.compare(b.place) })
	return all
}

// report counts what was folded, and logs what was left out. The events of a key
// that was parked before are only counted.
func (f *Feed) report(ctx context.Context, w *work, result *folded) {
	telemetry.ProjectionApplied(ctx, w.name, result.applied)
	if result.skipped == 0 {
		return
	}
	telemetry.ProjectionSkipped(ctx, w.name, result.skipped)
	if errors.Is(result.failure, ErrParked) {
		return
	}
	log := f.config.Log.With("projection", w.name, "tenant_id", w.TenantID,
		"key", w.Key.Key, "events", result.skipped, "first_audit_id", result.failedAt, "error", result.failure)
	if result.parked != nil {
		log.ErrorContext(ctx, "a key of a projection is parked: it is not folded until it is rebuilt (holdfast projections rebuild)")
		return
	}
	log.ErrorContext(ctx, "events were left out of a projection")
}

// asyncSQL lets the commit return before the disk has it. After a crash of the
// server, states and position are those of an earlier delivery, and the records
// since then are delivered again.
const asyncSQL = `SELECT set_config('synchronous_commit', 'off', true)`

// write folds all work in one transaction with the checkpoint.
func (f *Feed) write(ctx context.Context, d *audit.Delivery, all []work, fold func(context.Context, pgx.Tx, []work) ([]folded, error)) (results []folded, err error) {
	err = pgx.BeginTxFunc(ctx, f.db, readCommitted, func(tx pgx.Tx) error {
		b := &pgx.Batch{}
		b.Queue(asyncSQL)
		pg.QueueLookUp(b)
		if err := tx.SendBatch(ctx, b).Close(); err != nil {
			return err
		}
		if results, err = fold(ctx, tx, all); err != nil {
			return err
		}
		return d.CheckpointTx(ctx, tx)
	})
	return results, err
}

// foldAll locks all rows at once, and writes all states once per snapshot
// interval.
func (f *Feed) foldAll(ctx context.Context, tx pgx.Tx, all []work) ([]folded, error) {
	at := make([]place, len(all))
	for i := range all {
		at[i] = all[i].place
	}
	rows, err := openTx(ctx, tx, at, nil)
	if err != nil {
		return nil, err
	}
	results, next := make([]folded, len(all)), make([]int, len(all))
	left := make([]int, len(all)) // the work whose events are not all folded
	for i := range all {
		results[i].row, left[i] = rows[i], i
	}
	for len(left) > 0 {
		var more []int
		var places []place
		var changed []row
		for _, i := range left {
			if err := ctx.Err(); err != nil { // the lease is over
				return nil, err
			}
			before := results[i].row
			var part folded
			part, next[i] = all[i].batch.fold(all[i].at, next[i], before)
			results[i].add(part)
			if next[i] > 0 {
				more = append(more, i)
			}
			if part.changes(&before, next[i] == 0) {
				places, changed = append(places, at[i]), append(changed, part.row)
			}
		}
		if err := writeTx(ctx, tx, places, changed); err != nil {
			return nil, err
		}
		left = more
	}
	return results, nil
}

// changes reports whether the row is to be written after the part, or deleted
// after the last part.
func (f *folded) changes(before *row, last bool) bool {
	if f.empty() {
		return last
	}
	return f.applied > 0 || f.refused != before.refused || f.parked != before.parked
}

// add adds the result of the next part of the same key's events.
func (f *folded) add(part folded) {
	f.row = part.row
	f.applied += part.applied
	f.messages = append(f.messages, part.messages...)
	if f.failure == nil {
		f.failure, f.failedAt = part.failure, part.failedAt
	}
	f.skipped += part.skipped
}

// foldEach is foldAll for a delivery with states that the database refuses: each
// key has its own savepoint, and the events of those that fail are left out.
func (f *Feed) foldEach(ctx context.Context, tx pgx.Tx, all []work) ([]folded, error) {
	results := make([]folded, len(all))
	for i := range all {
		err := pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
			one, err := f.foldAll(ctx, tx, all[i:i+1])
			if err == nil {
				results[i] = one[0]
			}
			return err
		})
		if pg.IsData(err) {
			results[i] = folded{skipped: 1, failure: errors.Join(errors.New("all events of the delivery for this key"), err)}
			continue
		}
		if err != nil {
			return nil, err
		}
	}
	return results, nil
}
