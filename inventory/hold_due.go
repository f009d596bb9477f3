package inventory

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/reservationrows"
	"github.com/holdfast/holdfast/reservations"
)

// DueExpiry decides asks as HoldTx does, and ends due holds of their variants in the same transaction, whether the units
// are needed or not. A caller that decides most of what is asked of a variant thus expires its holds as fast as it makes
// them, without a wait for the stock's lock.
//
// It remembers up to which deadline it has ended the holds of a variant, so that it does not read the index entries of
// ended holds again while an old snapshot keeps them. Due holds from before that deadline, if there are any, are left to
// the sweep. The zero value is ready. It is safe for concurrent use.
type DueExpiry struct {
	mu    sync.Mutex
	ended map[Ref]time.Time // the last deadline
}

const (
	// dueLeast is how many due holds of its variants one transaction ends at most, however few asks it decides. For a
	// variant with many asks the bound is a quarter more than they are, so that a backlog shrinks at any rate of asks.
	dueLeast = 500
	// endedMax bounds the variants that are remembered.
	endedMax = 10_000
)

// HoldTx is the function of that name, and adds due holds to what the Holding ends. It costs one more statement, in the
// round trip that locks the stocks. It waits for no lock but the stocks', and leaves a variant's due holds alone where the
// counters do not cover them, because they would fail the transaction; the sweep reports such a variant.
//
// Call Committed once the transaction is committed.
//
// Isolation level and errors are those of the function HoldTx: READ COMMITTED, else ErrIsolation; *BacklogError.
func (e *DueExpiry) HoldTx(ctx context.Context, tx pgx.Tx, asks []Ask, terms Terms) (*Holding, error) {
	refs := variantsOf(asks)
	var due []reservations.Reservation
	k, err := lockKnownTx(ctx, tx, refs, terms, func(b *pgx.Batch) {
		reservationrows.QueueLockDueOfKeys(b, Kind, e.wanted(asks, refs), func(locked []reservations.Reservation) { due = locked })
	})
	if err != nil {
		return nil, err
	}
	k.takeBack(due)
	return holdTx(ctx, tx, asks, k)
}

// wanted says how many due holds of each variant are to be locked, and from which deadline on.
func (e *DueExpiry) wanted(asks []Ask, refs []Ref) []reservationrows.DueOfOne {
	count := make(map[Ref]int, len(refs))
	for i := range asks {
		count[Ref{asks[i].TenantID, asks[i].VariantID}]++
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	wanted := make([]reservationrows.DueOfOne, len(refs))
	for i, ref := range refs {
		n := count[ref]
		wanted[i] = reservationrows.DueOfOne{
			Resource: reservationrows.Resource{TenantID: ref.TenantID, ResourceKey: ref.VariantID},
			Most:     max(n+n/4, dueLeast/len(refs), 1),
			Since:    e.ended[ref],
		}
	}
	return wanted
}

// Committed notes that the transaction of a Holding that HoldTx returned is committed. On nil it does nothing.
func (e *DueExpiry) Committed(h *Holding) {
	if e == nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for i := range h.expired {
		r := &h.expired[i]
		ref := Ref{r.TenantID, r.ResourceKey}
		if _, known := e.ended[ref]; len(e.ended) == 0 || !known && len(e.ended) >= endedMax {
			e.ended = make(map[Ref]time.Time)
		}
		if e.ended[ref].Before(r.ExpiresAt) {
			e.ended[ref] = r.ExpiresAt
		}
	}
}

// takeBack counts locked due holds as expired before the first ask, except those of variants whose counters they exceed.
func (k *known) takeBack(due []reservations.Reservation) {
	k.taken = make(map[Ref][]reservations.Reservation)
	for _, r := range due {
		ref := Ref{r.TenantID, r.ResourceKey}
		k.taken[ref] = append(k.taken[ref], r)
	}
	maps.DeleteFunc(k.taken, func(ref Ref, due []reservations.Reservation) bool {
		c := k.counters[ref]
		return c == nil || c.Reserved < units(due) || c.Reserved > c.Stock && !c.Backorder && c.Tracked
	})
	for ref, due := range k.taken {
		k.counters[ref].Reserved -= units(due)
	}
}
