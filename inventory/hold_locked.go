package inventory

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/reservationrows"
	"github.com/holdfast/holdfast/reservations"
)

// Locking locks the stocks of asks in a batch that does other things besides, and waits for none of them.
type Locking struct {
	refs  []Ref
	terms Terms
	stocks
	due []reservations.Reservation
}

// QueueLocking adds to b statements that lock the stocks of the asks' variants, but for those that other transactions have
// locked, and read the database's clock. expiry, if not nil, ends due holds of the variants besides, as DueExpiry.HoldTx
// does. The transaction must be READ COMMITTED, which the caller has checked.
func QueueLocking(b *pgx.Batch, asks []Ask, terms Terms, expiry *DueExpiry) *Locking {
	l := &Locking{refs: variantsOf(asks), terms: terms}
	var then func(*pgx.Batch)
	if expiry != nil {
		then = func(b *pgx.Batch) {
			reservationrows.QueueLockDueOfKeys(b, Kind, expiry.wanted(asks, l.refs), func(due []reservations.Reservation) { l.due = due })
		}
	}
	l.queue(b, lockFreeSQL, l.refs, then)
	return l
}

// Now is the reading of the database's clock behind the locks.
func (l *Locking) Now() time.Time { return l.now }

// HoldTx decides the asks once the batch was sent, as the function of that name does. An ask whose stock is not locked gets
// the verdict Locked: another transaction has it, or the tenant has no such variant.
//
// The transaction must be READ COMMITTED, which the caller has checked. Errors: *BacklogError; what the database says.
func (l *Locking) HoldTx(ctx context.Context, tx pgx.Tx, asks []Ask) (*Holding, error) {
	k := known{now: l.now, counters: l.counters, ttl: l.terms.TTL, lifetimeMax: l.terms.LifetimeMax, locked: make(map[Ref]bool)}
	for _, ref := range l.refs {
		if l.counters[ref] == nil {
			k.locked[ref] = true
		}
	}
	k.takeBack(l.due)
	return holdTx(ctx, tx, asks, k)
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
