package inventory

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/internal/pg"
	"github.com/holdfast/holdfast/internal/reservationrows"
	"github.com/holdfast/holdfast/reservations"
)

// Sweep is what one batch of an expiry sweep did.
type Sweep struct {
	// Found is how many holds were due when they were read, Expired how many of
	// them this batch ended. The rest were ended or extended by other
	// transactions.
	Found, Expired int
	// ScannedAt is the reading of the database's clock that the deadlines were
	// compared with.
	ScannedAt time.Time
}

// ExpireDue is one batch of an [Expiry]. A variant that the batch skipped is an
// error, after all the others were done. Use Expiry for a backlog: the next
// ExpireDue begins with the same variant.
func ExpireDue(ctx context.Context, db *pgxpool.Pool, limit int) (Sweep, error) {
	expiry := NewExpiry(db)
	s, err := expiry.Next(ctx, limit)
	for _, skipped := range expiry.Skipped() {
		err = errors.Join(err, skipped.Err)
	}
	return s, err
}

// A pass waits at most stockWait for a lock. After the first lock that was not
// released in that time, it waits shortWait for each of the others: a stalled
// transaction keeps its locks longer than any pass waits.
const (
	stockWait = 2 * time.Second
	shortWait = 50 * time.Millisecond
)

// holdWait is how long a pass waits for a hold that another transaction has
// locked, while it has stocks locked. It is long enough for no drain to notice.
const holdWait = 5 * time.Millisecond

// fruitlessMax is how many batches of one deadline in a row may end no hold,
// until the pass leaves their variants to the next one.
const fruitlessMax = 3

// minDueToWait is how long the oldest due hold of a variant must have been due
// before a pass waits for its stock. A transaction that has the stock locked is
// most likely a drain, which ends due holds too, and a waiting pass would delay
// the next drain.
const minDueToWait = 5 * time.Second

// OldestDue returns how long the oldest due hold is past its deadline, 0 if no
// hold is due.
func OldestDue(ctx context.Context, db pg.Batcher) (time.Duration, error) {
	oldest, err := reservationrows.OldestDue(ctx, db, Kind)
	if err != nil {
		return 0, fmt.Errorf("find the oldest due hold: %w", err)
	}
	return oldest, nil
}

const (
	// SkippedMax is how many variants one pass skips at most. If more fail,
	// single variants are not the cause.
	SkippedMax = 1000
	// TenantSkippedMax is how many variants of one tenant a pass skips at most.
	// It then leaves out all of this tenant's due holds, and ends those of the
	// other tenants.
	TenantSkippedMax = 100
)

// Skipped is a variant whose due holds a pass could not end. The pass ends the
// holds of all other variants, except those of a tenant with TenantSkippedMax
// such variants: the error of the last of these reports that the tenant is left
// out.
type Skipped struct {
	Variant Ref
	Err     error
}

// Broken reports whether the variant's rows are inconsistent, so that the next
// pass skips it too until they are repaired. Otherwise a lock was not released
// in time.
func (s Skipped) Broken() bool { return pg.IsData(s.Err) }

// Expiry is one pass over the holds that are past their deadline. Several may
// run at once; one is not safe for concurrent use.
//
// A pass waits for the stock of a variant only in a transaction that has
// nothing else locked. First it expires the holds of the variants whose stocks
// are free, in two parallel transactions. Then it takes each other variant
// individually, if its oldest hold has been due for 5 s; before that, the
// variant is left to the transaction that has the stock, or to the next pass.
// So the sweep of a hot variant blocks neither other variants nor the variant's
// own requests.
//
// Nor does a pass wait for a hold that another transaction has locked: it leaves
// the hold to the next pass, and ends the other due holds of the variant.
//
// If one of the first transactions fails, its variants are tried individually
// too. A variant that fails individually, because its counters do not cover its
// holds or because another transaction does not release a lock, is skipped for
// the rest of the pass, however many due holds it has. A tenant with
// TenantSkippedMax such variants is left out.
type Expiry struct {
	db        *pgxpool.Pool
	begun     bool // the mark of the sweeps is moved
	pass      reservationrows.DueQuery
	wait      time.Duration
	locking   bool // the pass has found a locked or changed hold, and now locks holds before it ends them
	fruitless int  // batches of one deadline in a row that ended no hold
	skipped   []Skipped
	perTenant map[uuid.UUID]int // how many of skipped are the tenant's
}

// NewExpiry begins a pass.
func NewExpiry(db *pgxpool.Pool) *Expiry {
	return &Expiry{db: db, pass: reservationrows.DueQuery{Kind: Kind}, wait: stockWait, perTenant: make(map[uuid.UUID]int)}
}

// Next ends up to limit holds that are past their deadline, the longest due
// first, and gives their units back. It never ends a hold before its expires_at
// on the database's clock. If Found is below limit, the pass is over.
//
// Errors, which end the pass: a database error that is not of a single variant;
// more than SkippedMax variants that fail.
func (e *Expiry) Next(ctx context.Context, limit int) (Sweep, error) {
	if !e.begun {
		if err := reservationrows.MoveMark(ctx, e.db, Kind); err != nil {
			return Sweep{}, err
		}
		e.begun = true
	}
	due, err := readDue(ctx, e.db, e.pass, limit)
	if err != nil {
		return Sweep{}, err
	}
	from := e.pass.From
	e.pass.From = due.last
	s, err := e.expire(ctx, due)
	if err != nil || s.Expired > 0 || s.Found < limit || !due.last.Equal(from) {
		e.fruitless = 0
		return s, err
	}
	// Other transactions have locked as many holds with one deadline as a batch
	// reads, or end them just now. Unless they end, the next batch reads them
	// again.
	if e.fruitless++; e.fruitless == fruitlessMax {
		e.fruitless = 0
		for _, variant := range due.variants {
			e.pass.Except = append(e.pass.Except, reservationrows.Resource{TenantID: variant.TenantID, ResourceKey: variant.VariantID})
		}
	}
	return s, err
}

// Skipped returns the variants that the pass has skipped so far.
func (e *Expiry) Skipped() []Skipped { return slices.Clone(e.skipped) }

// skip excludes the variant from the rest of the pass, and its tenant too if
// too many of the tenant's variants fail.
func (e *Expiry) skip(variant Ref, err error) error {
	if len(e.skipped) >= SkippedMax {
		return fmt.Errorf("expire due holds: more than %d variants fail: %w", SkippedMax, err)
	}
	e.perTenant[variant.TenantID]++
	if e.excludes(variant.TenantID) {
		e.pass.ExceptTenants = append(e.pass.ExceptTenants, variant.TenantID)
		err = fmt.Errorf("%d variants of tenant %s fail, and its other due holds are left out of this pass: %w",
			TenantSkippedMax, variant.TenantID, err)
	}
	e.skipped = append(e.skipped, Skipped{variant, err})
	e.pass.Except = append(e.pass.Except, reservationrows.Resource{TenantID: variant.TenantID, ResourceKey: variant.VariantID})
	if isLocked(err) {
		e.wait = shortWait
	}
	return nil
}

// excludes reports whether the rest of the pass excludes all of the tenant's
// holds.
func (e *Expiry) excludes(tenantID uuid.UUID) bool { return e.perTenant[tenantID] >= TenantSkippedMax }

// isLocked reports whether a lock was not released in time, or the wait for it
// was a deadlock.
func isLocked(err error) bool { return pg.IsLockTimeout(err) || pg.IsDeadlock(err) }

const setWaitSQL = `SELECT set_config('lock_timeout', $1, true)`

// waiting sets how long the transaction waits for each lock, and makes the
// planner read rows by index.
func waiting(wait time.Duration) func(*pgx.Batch) {
	return func(b *pgx.Batch) {
		b.Queue(setWaitSQL, fmt.Sprint(wait.Milliseconds()))
		pg.QueueLookUp(b)
	}
}

func (s *Sweep) add(more Sweep) {
	if !more.ScannedAt.IsZero() {
		s.Expired, s.ScannedAt = s.Expired+more.Expired, more.ScannedAt
	}
}

// unlockedSweep is what expireUnlocked did, and which variants it left. locked
// means that it did nothing, because another transaction has a lock or has
// changed a hold: with locking it would leave out that hold only.
type unlockedSweep struct {
	Sweep
	left   []Ref
	locked bool
	err    error
}

// expireUnlocked ends the holds of those variants whose stocks no other
// transaction has locked, in one transaction. It relies on a read of the holds
// without locks, which is nearly always still true: a hold that has changed
// fails its ending. Then all variants are left. They are also left if the
// transaction fails on data.
//
// With locking, it first locks those holds that no other transaction has
// locked, and ends these. That costs a statement more.
func (e *Expiry) expireUnlocked(ctx context.Context, due dueHolds, locking bool) (f unlockedSweep) {
	wait := holdWait
	if locking {
		wait = e.wait
	}
	err := pgx.BeginFunc(ctx, e.db, func(tx pgx.Tx) error {
		free, err := lockTx(ctx, tx, lockUnlockedSQL, due.variants, waiting(wait))
		if err != nil {
			return err
		}
		var held []reservations.Reservation
		for _, variant := range due.variants {
			switch oldest := due.holds[variant][0].ExpiresAt; {
			case free.counters[variant] != nil:
				held = append(held, due.holds[variant]...)
			case free.now.Sub(oldest) >= minDueToWait:
				f.left = append(f.left, variant)
			}
		}
		if locking {
			f.Sweep, err = expireTx(ctx, tx, held)
			return err
		}
		slices.SortFunc(held, func(a, b reservations.Reservation) int { // ending them locks them in this order
			return cmp.Or(bytes.Compare(a.TenantID[:], b.TenantID[:]), bytes.Compare(a.ReservationID[:], b.ReservationID[:]))
		})
		f.Sweep = Sweep{Expired: len(held), ScannedAt: free.now}
		ending := expiry(free.now)
		ending.Unchanged = due.versions
		return endTx(ctx, tx, held, ending)
	})
	switch {
	case err == nil:
		return f
	case pg.IsData(err), isLocked(err): // ErrChanged counts as data
		return unlockedSweep{left: due.variants, locked: isLocked(err) || errors.Is(err, reservationrows.ErrChanged)}
	default:
		return unlockedSweep{err: fmt.Errorf("expire due holds: %w", err)}
	}
}

// expireOne ends those of one variant's holds that are still due.
func (e *Expiry) expireOne(ctx context.Context, variant Ref, due []reservations.Reservation) (s Sweep, err error) {
	err = pgx.BeginFunc(ctx, e.db, func(tx pgx.Tx) error {
		if _, err := lockTx(ctx, tx, lockSQL, []Ref{variant}, waiting(e.wait)); err != nil {
			return err
		}
		s, err = expireTx(ctx, tx, due)
		return err
	})
	if err != nil {
		return Sweep{}, fmt.Errorf("expire due holds of variant %s: %w", variant.VariantID, err)
	}
	return s, nil
}

// dueHolds are holds that were due when they were read, by variant.
type dueHolds struct {
	found    int
	last     time.Time // the last deadline
	variants []Ref     // in the order in which they were read
	holds    map[Ref][]reservations.Reservation
	versions reservationrows.Versions
}

func readDue(ctx context.Context, db pg.Batcher, pass reservationrows.DueQuery, limit int) (dueHolds, error) {
	found, versions, err := reservationrows.Due(ctx, db, pass, limit)
	if err != nil {
		return dueHolds{}, err
	}
	due := dueHolds{found: len(found), holds: make(map[Ref][]reservations.Reservation), versions: versions}
	for i := range found {
		variant := Ref{found[i].TenantID, found[i].ResourceKey}
		if due.holds[variant] == nil {
			due.variants = append(due.variants, variant)
		}
		due.holds[variant] = append(due.holds[variant], found[i])
		due.last = found[i].ExpiresAt
	}
	return due, nil
}

// expire ends those of the holds that are still due, and skips the variants
// whose holds it cannot end.
func (e *Expiry) expire(ctx context.Context, due dueHolds) (s Sweep, err error) {
	s.Found = due.found
	if s.Found == 0 {
		s.ScannedAt, err = pg.ReadClock(ctx, e.db)
		return s, err
	}
	parts := due.split()
	swept := make([]unlockedSweep, len(parts))
	var sweeping sync.WaitGroup
	for i := range parts {
		sweeping.Go(func() {
			swept[i] = e.expireUnlocked(ctx, parts[i], e.locking)
			if swept[i].locked && !e.locking {
				swept[i] = e.expireUnlocked(ctx, parts[i], true)
				swept[i].locked = true
			}
		})
	}
	sweeping.Wait()
	var left []Ref
	for i := range swept {
		e.locking = e.locking || swept[i].locked
		s.add(swept[i].Sweep)
		left = append(left, swept[i].left...)
		err = errors.Join(err, swept[i].err)
	}
	for _, variant := range left {
		if err != nil {
			break
		}
		if e.excludes(variant.TenantID) {
			continue
		}
		one, failure := e.expireOne(ctx, variant, due.holds[variant])
		s.add(one)
		if pg.IsData(failure) || isLocked(failure) {
			failure = e.skip(variant, failure)
		}
		err = failure
	}
	return s, err
}

// splitMin is how many due holds are split between two transactions.
const splitMin = 100

// split splits the variants between two transactions, with about as many holds
// each. If there are few, it returns one part.
func (d dueHolds) split() []dueHolds {
	if d.found < splitMin || len(d.variants) == 1 {
		return []dueHolds{d}
	}
	half, n := 0, 0
	for half < len(d.variants)-1 && n < d.found/2 {
		n += len(d.holds[d.variants[half]])
		half++
	}
	first, second := d, d
	first.variants, second.variants = d.variants[:half], d.variants[half:]
	return []dueHolds{first, second}
}
