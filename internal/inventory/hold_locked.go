package inventory

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/pg"
	"github.com/holdfast/holdfast/internal/reservationrows"
	"github.com/holdfast/holdfast/reservations"
)

// Locking locks the stocks of requests in a batch with other statements.
type Locking struct {
	refs   []Ref
	terms  Terms
	expiry *DueExpiry
	stocks
}

// QueueLocking adds to b statements that lock the stocks of the requests'
// variants, except those that other transactions have locked, and read the
// database's clock. If expiry is not nil, HoldTx also ends due holds of the
// locked variants, as DueExpiry.HoldTx does. The transaction must be READ
// COMMITTED, which the caller has checked.
func QueueLocking(b *pgx.Batch, requests []HoldRequest, terms Terms, expiry *DueExpiry) *Locking {
	l := &Locking{refs: variantsOf(requests), terms: terms, expiry: expiry}
	l.queue(b, lockUnlockedSQL, l.refs, nil)
	return l
}

// Complete reports whether the batch that was sent has locked the stocks of all
// requests.
func (l *Locking) Complete() bool { return len(l.counters) == len(l.refs) }

// WaitTx waits for the stock for at most that long, after the batch was sent, if the requests are for
// a single variant whose stock another transaction has locked. It does not wait
// for one of several stocks while the others are locked.
//
// The transaction must be READ COMMITTED, which the caller has checked. Errors:
// the database's, with SQLSTATE 55P03 if the stock is still locked.
func (l *Locking) WaitTx(ctx context.Context, tx pgx.Tx, atMost time.Duration) (err error) {
	if len(l.refs) > 1 || len(l.counters) > 0 {
		return nil
	}
	l.counters, l.now, err = lockTx(ctx, tx, l.refs, waiting(atMost))
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
	in := inputs{now: l.now, counters: l.counters, ttl: l.terms.TTL, lifetimeMax: l.terms.LifetimeMax, locked: make(map[Ref]bool)}
	own := make([]Ref, 0, len(l.refs))
	for _, ref := range l.refs {
		if l.counters[ref] == nil {
			in.locked[ref] = true
		} else {
			own = append(own, ref)
		}
	}
	if l.expiry != nil && len(own) > 0 {
		if err := in.lockDueTx(ctx, tx, l.expiry.wanted(requests, own)); err != nil {
			return nil, err
		}
	}
	return holdTx(ctx, tx, requests, in)
}

// lockDueTx locks due holds of variants whose stocks are locked, counts them as
// expired, and reads the clock again. It locks no holds of other variants: two
// transactions that each had locked holds of the other's variant could
// deadlock.
func (in *inputs) lockDueTx(ctx context.Context, tx pgx.Tx, wanted []reservationrows.DueRange) error {
	b := &pgx.Batch{}
	due := reservationrows.QueueLockDueOfKeys(b, Kind, wanted, time.Time{})
	pg.QueueClock(b, &in.now)
	if err := tx.SendBatch(ctx, b).Close(); err != nil {
		return fmt.Errorf("lock due holds of %d variants: %w", len(wanted), err)
	}
	in.countExpired(*due)
	return nil
}

// Made returns the reservations that the decision makes, in the order of their
// requests, each as it is after the decision is written. The id of a
// reservation is the id of its request.
func (h *Holding) Made() []reservations.Reservation {
	made := make([]reservations.Reservation, 0, len(h.decision.holds))
	for i := range h.decision.holds {
		hold := &h.decision.holds[i]
		for j := range hold.Replaces {
			for k := range made { // a hold of the same set
				if made[k].Ref() == hold.Replaces[j].Ref() {
					made[k].Status, made[k].ReleaseReason, made[k].EndedAt = reservations.Released, reservations.Replaced, &hold.HeldAt
				}
			}
		}
		made = append(made, hold.Reservation)
	}
	return made
}
