package inventory

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/pg"
	"github.com/holdfast/holdfast/internal/reservationrows"
	"github.com/holdfast/holdfast/reservations"
)

// HoldTx decides the requests in the order given, first come, first served. It
// writes nothing: the caller runs the statements of Holding.Queue in the same
// transaction. If a variant comes up short, its own due holds are expired
// first, so a hold past its deadline never blocks a request, swept or not.
//
// It locks the stocks of the variants in (tenant, variant) order, and waits for
// them. It does not wait for holds that other transactions have locked, of a
// request's cart or past their deadline: a request whose outcome depends on one
// gets the outcome LockedHold or LockedDue, and the others are decided.
//
// The transaction must be READ COMMITTED, else ErrIsolation, because what a
// cart holds is read after its stocks are locked.
//
// Errors: *BacklogError; the database's.
func HoldTx(ctx context.Context, tx pgx.Tx, requests []HoldRequest, terms Terms) (*Holding, error) {
	return holdLockingTx(ctx, tx, requests, terms, false)
}

// HoldUnlockedTx is HoldTx without waiting for stocks that other transactions
// have locked: their requests get the outcome Locked. The isolation level and
// the errors are those of HoldTx.
func HoldUnlockedTx(ctx context.Context, tx pgx.Tx, requests []HoldRequest, terms Terms) (*Holding, error) {
	refs := variantsOf(requests)
	s, err := lockTx(ctx, tx, lockUnlockedSQL, refs, pg.QueueIsolation)
	if err != nil {
		return nil, err
	}
	in := inputs{stocks: s, Terms: terms}
	if len(s.counters) < len(refs) {
		in.locked, err = withLockedStock(ctx, tx, refs, s.counters)
		if err != nil {
			return nil, err
		}
	}
	return holdTx(ctx, tx, requests, in)
}

// HoldEndingDueTx is HoldTx, and ends due holds of the variants in the same
// transaction, whether or not their units are needed. So a caller that decides
// most of a variant's requests expires its holds as fast as it makes them,
// without another wait for the stock's lock.
//
// It costs one more statement, in the round trip that locks the stocks. It does
// not end a variant's due holds if the counters do not cover them, because they
// would fail the transaction; the sweep reports such a variant.
//
// The isolation level and the errors are those of HoldTx: READ COMMITTED, else
// ErrIsolation; *BacklogError.
func HoldEndingDueTx(ctx context.Context, tx pgx.Tx, requests []HoldRequest, terms Terms) (*Holding, error) {
	return holdLockingTx(ctx, tx, requests, terms, true)
}

func holdLockingTx(ctx context.Context, tx pgx.Tx, requests []HoldRequest, terms Terms, endDue bool) (*Holding, error) {
	refs := variantsOf(requests)
	in := inputs{Terms: terms}
	due := new([]reservations.Reservation)
	b := &pgx.Batch{}
	pg.QueueIsolation(b)
	in.queue(b, lockSQL, refs)
	if endDue {
		due = dueHoldsOf.QueueLockSome(b, endable(requests, refs))
	}
	pg.QueueClock(b, &in.now)
	if err := tx.SendBatch(ctx, b).Close(); err != nil {
		return nil, fmt.Errorf("lock %d stocks: %w", len(refs), err)
	}
	in.countExpired(*due)
	return holdTx(ctx, tx, requests, in)
}

// dueMin is how many due holds of its variants one transaction may end, however
// few requests it decides. For a variant with many requests the bound is 1.25
// times their number, so that a backlog shrinks at any rate of requests.
const dueMin = 500

// endable returns how many due holds of each variant are to be locked.
func endable(requests []HoldRequest, refs []Ref) []reservationrows.DueLimit {
	count := make(map[Ref]int, len(refs))
	for i := range requests {
		count[Ref{requests[i].TenantID, requests[i].VariantID}]++
	}
	wanted := make([]reservationrows.DueLimit, len(refs))
	for i, ref := range refs {
		n := count[ref]
		wanted[i] = dueLimit(ref, max(n+n/4, dueMin/len(refs), 1))
	}
	return wanted
}

// countExpired counts locked due holds as expired before the first request,
// except those of a variant whose counters do not cover them.
func (in *inputs) countExpired(due []reservations.Reservation) {
	in.expiring = make(map[Ref][]reservations.Reservation)
	for _, r := range due {
		ref := Ref{r.TenantID, r.ResourceKey}
		in.expiring[ref] = append(in.expiring[ref], r)
	}
	maps.DeleteFunc(in.expiring, func(ref Ref, due []reservations.Reservation) bool {
		c := in.counters[ref]
		return c == nil || c.Reserved < units(due) || c.Reserved > c.capacity() && c.bounded() && c.Tracked
	})
	for ref, due := range in.expiring {
		in.counters[ref].Reserved -= units(due)
	}
}

// Locking locks the stocks of requests in a batch with other statements.
type Locking struct {
	refs   []Ref
	terms  Terms
	endDue bool
	stocks
}

// QueueLocking adds to b statements that lock the stocks of the requests'
// variants, except those that other transactions have locked, and read the
// database's clock. With endDue, HoldTx also ends due holds of the locked
// variants, as HoldEndingDueTx does. The transaction must be READ COMMITTED,
// which the caller has checked.
func QueueLocking(b *pgx.Batch, requests []HoldRequest, terms Terms, endDue bool) *Locking {
	l := &Locking{refs: variantsOf(requests), terms: terms, endDue: endDue}
	l.queue(b, lockUnlockedSQL, l.refs)
	pg.QueueClock(b, &l.now)
	return l
}

// Complete reports whether the batch that was sent has locked the stocks of all
// requests.
func (l *Locking) Complete() bool { return len(l.counters) == len(l.refs) }

// Untracked reports whether the stock of the variant is locked, and the variant
// is not tracked.
func (l *Locking) Untracked(ref Ref) bool {
	c := l.counters[ref]
	return c != nil && !c.Tracked
}

// WaitTx waits for the stock for at most that long, after the batch was sent,
// if the requests are for a single variant whose stock another transaction has
// locked. It does not wait for one of several stocks while the others are
// locked.
//
// The transaction must be READ COMMITTED, which the caller has checked. Errors:
// the database's, with SQLSTATE 55P03 if the stock is still locked.
func (l *Locking) WaitTx(ctx context.Context, tx pgx.Tx, atMost time.Duration) (err error) {
	if len(l.refs) > 1 || len(l.counters) > 0 {
		return nil
	}
	l.stocks, err = lockTx(ctx, tx, lockSQL, l.refs, waiting(atMost))
	return err
}

// Now is the reading of the database's clock after the locks were taken.
func (l *Locking) Now() time.Time { return l.now }

// HoldTx decides the requests after the batch was sent, as the function HoldTx
// does. A request whose stock is not locked gets the outcome Locked: another
// transaction has it, or the tenant has no such variant.
//
// The transaction must be READ COMMITTED, which the caller has checked. Errors:
// *BacklogError; the database's.
func (l *Locking) HoldTx(ctx context.Context, tx pgx.Tx, requests []HoldRequest) (*Holding, error) {
	in := inputs{stocks: l.stocks, Terms: l.terms, locked: make(map[Ref]bool)}
	own := make([]Ref, 0, len(l.refs))
	for _, ref := range l.refs {
		if l.counters[ref] == nil {
			in.locked[ref] = true
		} else {
			own = append(own, ref)
		}
	}
	if l.endDue && len(own) > 0 {
		if err := in.lockDueTx(ctx, tx, endable(requests, own)); err != nil {
			return nil, err
		}
	}
	return holdTx(ctx, tx, requests, in)
}

// lockDueTx locks due holds of variants whose stocks are locked, counts them as
// expired, and reads the clock again. It locks no holds of other variants: two
// transactions that each had locked holds of the other's variant could
// deadlock.
func (in *inputs) lockDueTx(ctx context.Context, tx pgx.Tx, wanted []reservationrows.DueLimit) error {
	b := &pgx.Batch{}
	due := dueHoldsOf.QueueLockSome(b, wanted)
	pg.QueueClock(b, &in.now)
	if err := tx.SendBatch(ctx, b).Close(); err != nil {
		return fmt.Errorf("lock due holds of %d variants: %w", len(wanted), err)
	}
	in.countExpired(*due)
	return nil
}
