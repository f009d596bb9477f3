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

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/pgerr"
	"github.com/holdfast/holdfast/internal/plans"
	"github.com/holdfast/holdfast/internal/reservationrows"
	"github.com/holdfast/holdfast/reservations"
)

// Sweep is what one batch of an expiry sweep did.
type Sweep struct {
	// Found is how many holds were due, Expired how many of them this batch ended: another sweep may have been faster.
	Found, Expired int
	// ScannedAt is the reading of the database's clock that the deadlines were compared with.
	ScannedAt time.Time
}

// ExpireDue is one batch of an [Expiry]. A variant that the batch skipped is an error, after all the others were done.
// Work off a backlog with Expiry: here the next call begins with the same variant.
func ExpireDue(ctx context.Context, db *pgxpool.Pool, limit int) (Sweep, error) {
	expiry := NewExpiry(db)
	s, err := expiry.Next(ctx, limit)
	for _, skipped := range expiry.Skipped() {
		err = errors.Join(err, skipped.Err)
	}
	return s, err
}

// A pass waits for a lock stockWait at most, and once one was not given back in that time, lateWait for each of the
// others: a transaction that has stopped keeps its locks longer than any pass waits.
const (
	stockWait = 2 * time.Second
	lateWait  = 50 * time.Millisecond
)

// leftFor is how long the oldest due hold of a variant must have been due for a pass to wait for its stock. A transaction
// that has the stock now is most likely a drain, which ends due holds too: a pass that waited would keep it from deciding.
const leftFor = 5 * time.Second

const oldestDueSQL = `
SELECT greatest(extract(epoch FROM clock_timestamp() - r.expires_at), 0)::double precision
FROM reservations r
WHERE r.ended_at IS NULL AND r.resource_kind = 'inventory.variant'
ORDER BY r.expires_at
LIMIT 1`

// OldestDue returns for how long the oldest hold is past its deadline that is not expired yet; 0 if none is.
func OldestDue(ctx context.Context, db audit.Querier) (time.Duration, error) {
	rows, err := db.Query(ctx, oldestDueSQL)
	if err != nil {
		return 0, fmt.Errorf("find the oldest due hold: %w", err)
	}
	seconds, err := pgx.CollectRows(rows, pgx.RowTo[float64])
	if err != nil || len(seconds) == 0 {
		return 0, err
	}
	return time.Duration(seconds[0] * float64(time.Second)), nil
}

const (
	// SkippedMax is how many variants one pass skips at most. More are no fault of single variants.
	SkippedMax = 1000
	// TenantSkippedMax is how many variants of one tenant a pass skips at most. It then leaves out all of this tenant's due
	// holds, and ends those of the other tenants.
	TenantSkippedMax = 100
)

// Skipped is a variant whose due holds a pass could not end. All the others' were, except those of a tenant with
// TenantSkippedMax such variants: the error of the last of these means that the tenant is left out.
type Skipped struct {
	Variant Ref
	Err     error
}

// Broken reports that the variant's rows do not allow it, so that the next pass will skip it too until they are mended.
// Otherwise a lock was not given back in time.
func (s Skipped) Broken() bool { return pgerr.IsData(s.Err) }

// Expiry is one pass over the holds that are past their deadline. Several may run at once; one is not safe for concurrent
// use.
//
// It waits for the stock of a variant only in a transaction that has nothing else locked: the variants whose stocks are
// free come first, in two transactions side by side, and each of the others individually, if its oldest hold has been due for
// 5 s: before that, it is left to the transaction that has the stock, or to the next pass. So a hot item's sweep holds up no
// other item, and not the item's own requests. Where the first fail, each of their variants is tried individually too. One that fails then, because its
// counters do not allow it or because another transaction does not give a lock back, is skipped for the rest of the pass,
// however many due holds it has, and a tenant with TenantSkippedMax of them is left out.
type Expiry struct {
	db        *pgxpool.Pool
	pass      reservationrows.Pass
	wait      time.Duration
	skipped   []Skipped
	perTenant map[uuid.UUID]int // how many of skipped are the tenant's
}

// NewExpiry begins a pass.
func NewExpiry(db *pgxpool.Pool) *Expiry {
	return &Expiry{db: db, pass: reservationrows.Pass{Kind: Kind}, wait: stockWait, perTenant: make(map[uuid.UUID]int)}
}

// Next ends up to limit holds that are past their deadline, the longest due first, and gives their units back. Never before
// expires_at on the database's clock. Found below limit means that the pass is over.
//
// Errors: what the database says of more than a variant; more than SkippedMax variants skipped. They end the pass.
func (e *Expiry) Next(ctx context.Context, limit int) (Sweep, error) {
	due, err := readDue(ctx, e.db, e.pass, limit)
	if err != nil {
		return Sweep{}, err
	}
	e.pass.From = due.last
	return e.expire(ctx, due)
}

// Skipped are the variants that the pass has skipped by now.
func (e *Expiry) Skipped() []Skipped { return slices.Clone(e.skipped) }

// skip leaves the variant out of the rest of the pass, and its tenant too if too many of its variants fail.
func (e *Expiry) skip(variant Ref, err error) error {
	if len(e.skipped) >= SkippedMax {
		return fmt.Errorf("expire due holds: more than %d variants fail: %w", SkippedMax, err)
	}
	e.perTenant[variant.TenantID]++
	if e.leavesOut(variant.TenantID) {
		e.pass.ExceptTenants = append(e.pass.ExceptTenants, variant.TenantID)
		err = fmt.Errorf("%d variants of tenant %s fail, and its other due holds are left out of this pass: %w",
			TenantSkippedMax, variant.TenantID, err)
	}
	e.skipped = append(e.skipped, Skipped{variant, err})
	e.pass.Except = append(e.pass.Except, reservationrows.Resource{TenantID: variant.TenantID, ResourceKey: variant.VariantID})
	if isLocked(err) {
		e.wait = lateWait
	}
	return nil
}

// leavesOut reports whether the rest of the pass leaves out all of the tenant's holds.
func (e *Expiry) leavesOut(tenantID uuid.UUID) bool { return e.perTenant[tenantID] >= TenantSkippedMax }

// isLocked reports that a lock was not given back in time, or that waiting for it was a deadlock.
func isLocked(err error) bool { return pgerr.Code(err) == "55P03" || pgerr.Code(err) == "40P01" }

const setWaitSQL = `SELECT set_config('lock_timeout', $1, true)`

// waiting sets how long the transaction waits for each lock, and has it look rows up by index.
func waiting(wait time.Duration) func(*pgx.Batch) {
	return func(b *pgx.Batch) {
		b.Queue(setWaitSQL, fmt.Sprint(wait.Milliseconds()))
		plans.QueueLookUp(b)
	}
}

func (s *Sweep) add(more Sweep) {
	if !more.ScannedAt.IsZero() {
		s.Expired, s.ScannedAt = s.Expired+more.Expired, more.ScannedAt
	}
}

// freed is what expireFree did, and which variants it left.
type freed struct {
	Sweep
	left []Ref
	err  error
}

// expireFree ends the holds of those variants whose stocks nobody has locked, in one transaction. It believes what was
// read of the holds without locks, which is so nearly always: what is wrong shows as they are ended, and then all the
// variants are left. So they are if the transaction fails on data, or a hold's lock is not given back.
func (e *Expiry) expireFree(ctx context.Context, due dueHolds) (f freed) {
	err := pgx.BeginFunc(ctx, e.db, func(tx pgx.Tx) error {
		free, now, err := lockFreeTx(ctx, tx, due.variants, waiting(e.wait))
		if err != nil {
			return err
		}
		var held []reservations.Reservation
		for _, variant := range due.variants {
			switch oldest := due.holds[variant][0].ExpiresAt; {
			case free[variant] != nil:
				held = append(held, due.holds[variant]...)
			case now.Sub(oldest) >= leftFor:
				f.left = append(f.left, variant)
			}
		}
		slices.SortFunc(held, func(a, b reservations.Reservation) int { // they are locked as they are ended
			return cmp.Or(bytes.Compare(a.TenantID[:], b.TenantID[:]), bytes.Compare(a.ReservationID[:], b.ReservationID[:]))
		})
		f.Sweep = Sweep{Expired: len(held), ScannedAt: now}
		return endTx(ctx, tx, held, expiry(now))
	})
	switch {
	case err == nil:
		return f
	case pgerr.IsData(err), isLocked(err): // reservationrows.ErrShifted is of the data
		return freed{left: due.variants}
	default:
		return freed{err: fmt.Errorf("expire due holds: %w", err)}
	}
}

// expireAlone ends those of one variant's holds that are due still.
func (e *Expiry) expireAlone(ctx context.Context, variant Ref, due []reservations.Reservation) (s Sweep, err error) {
	err = pgx.BeginFunc(ctx, e.db, func(tx pgx.Tx) error {
		if _, _, err := lockTx(ctx, tx, []Ref{variant}, waiting(e.wait)); err != nil {
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

// ExpireDueTx is ExpireDue in the caller's transaction, the only one: it reads which variants it needs, waits for their
// stocks in order, then locks the reservations, and checks again. One variant that fails is an error of the whole. It is
// right at every isolation level.
func ExpireDueTx(ctx context.Context, tx pgx.Tx, limit int) (Sweep, error) {
	due, err := readDue(ctx, tx, reservationrows.Pass{Kind: Kind}, limit)
	if err != nil {
		return Sweep{}, err
	}
	if _, _, err := lockTx(ctx, tx, due.variants); err != nil {
		return Sweep{}, fmt.Errorf("expire due holds: %w", err)
	}
	var held []reservations.Reservation
	for _, variant := range due.variants {
		held = append(held, due.holds[variant]...)
	}
	s, err := expireTx(ctx, tx, held)
	s.Found = due.found
	return s, err
}

// ExpireVariant ends up to limit holds of one variant that are past their deadline, the longest due first, and says how
// many. It locks the variant's stock, then the holds.
func ExpireVariant(ctx context.Context, db *pgxpool.Pool, variant Ref, limit int) (expired int, err error) {
	var s Sweep
	err = pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		_, now, err := lockTx(ctx, tx, []Ref{variant})
		if err != nil {
			return err
		}
		due, err := reservationrows.DueOfKey(ctx, tx, variant.TenantID, Kind, variant.VariantID, now, limit)
		if err != nil {
			return err
		}
		s, err = expireTx(ctx, tx, due)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("expire due holds of variant %s: %w", variant.VariantID, err)
	}
	return s.Expired, nil
}

// dueHolds are holds that were due when they were read, by variant.
type dueHolds struct {
	found    int
	last     time.Time // the last deadline
	variants []Ref     // in the order in which they were read
	holds    map[Ref][]reservations.Reservation
}

func readDue(ctx context.Context, db audit.Querier, pass reservationrows.Pass, limit int) (dueHolds, error) {
	found, err := reservationrows.Due(ctx, db, pass, limit)
	if err != nil {
		return dueHolds{}, err
	}
	due := dueHolds{found: len(found), holds: make(map[Ref][]reservations.Reservation)}
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

// expire ends those of the holds that are due still, and skips the variants whose holds it cannot end.
func (e *Expiry) expire(ctx context.Context, due dueHolds) (s Sweep, err error) {
	if s.Found = due.found; s.Found == 0 {
		return s, e.db.QueryRow(ctx, clockSQL).Scan(&s.ScannedAt)
	}
	parts := due.halves()
	swept := make([]freed, len(parts))
	var sweeping sync.WaitGroup
	for i := range parts {
		sweeping.Go(func() { swept[i] = e.expireFree(ctx, parts[i]) })
	}
	sweeping.Wait()
	var left []Ref
	for i := range swept {
		s.add(swept[i].Sweep)
		left = append(left, swept[i].left...)
		err = errors.Join(err, swept[i].err)
	}
	for _, variant := range left {
		if err != nil {
			break
		}
		if e.leavesOut(variant.TenantID) {
			continue
		}
		one, failure := e.expireAlone(ctx, variant, due.holds[variant])
		s.add(one)
		if pgerr.IsData(failure) || isLocked(failure) {
			failure = e.skip(variant, failure)
		}
		err = failure
	}
	return s, err
}

// worthHalving is how many holds are too many for one of two transactions that could share them.
const worthHalving = 100

// halves shares the variants out to two transactions, about as many holds to each; to one if there are few.
func (d dueHolds) halves() []dueHolds {
	if d.found < worthHalving || len(d.variants) == 1 {
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

// expireTx ends those of the holds that are due still; their stocks are locked.
func expireTx(ctx context.Context, tx pgx.Tx, due []reservations.Reservation) (Sweep, error) {
	refs := make([]reservationrows.Ref, len(due))
	for i := range due {
		refs[i] = due[i].Ref()
	}
	locked, now, err := reservationrows.LockTx(ctx, tx, refs)
	if err != nil {
		return Sweep{}, fmt.Errorf("expire due holds: %w", err)
	}
	still := slices.DeleteFunc(locked, func(r reservations.Reservation) bool { return !r.Due(now) })
	return Sweep{Expired: len(still), ScannedAt: now}, endTx(ctx, tx, still, expiry(now))
}
