package inventory

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/reservationrows"
	"github.com/holdfast/holdfast/reservations"
)

// Locking locks the stocks of asks in a batch that does other things besides.
type Locking struct {
	refs   []Ref
	terms  Terms
	expiry *DueExpiry
	stocks
}

// QueueLocking adds to b statements that lock the stocks of the asks' variants, but for those that other transactions have
// locked, and read the database's clock. expiry, if not nil, ends due holds of the locked variants besides, as
// DueExpiry.HoldTx does. The transaction must be READ COMMITTED, which the caller has checked.
func QueueLocking(b *pgx.Batch, asks []Ask, terms Terms, expiry *DueExpiry) *Locking {
	l := &Locking{refs: variantsOf(asks), terms: terms, expiry: expiry}
	l.queue(b, lockFreeSQL, l.refs, nil)
	return l
}

// directWait is how long WaitTx waits: a few dozen of such decisions, one after the other.
const directWait = 100 * time.Millisecond

// WaitTx waits for the stock, once the batch was sent, if the asks are of one variant whose stock another transaction has
// locked. It does not wait for one of several stocks, with the others locked.
//
// The transaction must be READ COMMITTED, which the caller has checked. Errors: what the database says, SQLSTATE 55P03 if the
// stock is still locked after 100 ms.
func (l *Locking) WaitTx(ctx context.Context, tx pgx.Tx) (err error) {
	if len(l.refs) > 1 || len(l.counters) > 0 {
		return nil
	}
	l.counters, l.now, err = lockTx(ctx, tx, l.refs, waiting(directWait))
	return err
}

// Now is the reading of the database's clock behind the locks.
func (l *Locking) Now() time.Time { return l.now }

// HoldTx decides the asks once the batch was sent, as the function of that name does. An ask whose stock is not locked gets
// the verdict Locked: another transaction has it, or the tenant has no such variant.
//
// The transaction must be READ COMMITTED, which the caller has checked. Errors: *BacklogError; what the database says.
func (l *Locking) HoldTx(ctx context.Context, tx pgx.Tx, asks []Ask) (*Holding, error) {
	k := known{now: l.now, counters: l.counters, ttl: l.terms.TTL, lifetimeMax: l.terms.LifetimeMax, locked: make(map[Ref]bool)}
	own := make([]Ref, 0, len(l.refs))
	for _, ref := range l.refs {
		if l.counters[ref] == nil {
			k.locked[ref] = true
		} else {
			own = append(own, ref)
		}
	}
	if l.expiry != nil && len(own) > 0 {
		if err := k.takeBackTx(ctx, tx, l.expiry.wanted(asks, own)); err != nil {
			return nil, err
		}
	}
	return holdTx(ctx, tx, asks, k)
}

// takeBackTx locks due holds of variants whose stocks are locked, counts them as expired, and reads the clock again. It
// takes none of other variants: of two transactions that each had holds of the other's variant, each could wait for the
// other.
func (k *known) takeBackTx(ctx context.Context, tx pgx.Tx, wanted []reservationrows.DueOfOne) error {
	b := &pgx.Batch{}
	var due []reservations.Reservation
	reservationrows.QueueLockDueOfKeys(b, Kind, wanted, func(locked []reservations.Reservation) { due = locked })
	b.Queue(clockSQL).QueryRow(func(row pgx.Row) error { return row.Scan(&k.now) })
	if err := tx.SendBatch(ctx, b).Close(); err != nil {
		return fmt.Errorf("lock due holds of %d variants: %w", len(wanted), err)
	}
	k.takeBack(due)
	return nil
}

// Made returns the reservations that the decision makes, in the order of their asks, each as it is once the decision is
// written. The id of a reservation is that of its request.
func (h *Holding) Made() []reservations.Reservation {
	made := make([]reservations.Reservation, 0, len(h.decision.holds))
	for i := range h.decision.holds {
		hold := &h.decision.holds[i]
		for j := range hold.Replaces {
			for k := range made { // a hold of the same group
				if made[k].Ref() == hold.Replaces[j].Ref() {
					made[k].Status, made[k].ReleaseReason, made[k].EndedAt = reservations.Released, reservations.Replaced, &hold.HeldAt
				}
			}
		}
		made = append(made, hold.Reservation)
	}
	return made
}
