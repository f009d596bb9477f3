package inventory

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/pg"
	"github.com/holdfast/holdfast/internal/reservationrows"
	"github.com/holdfast/holdfast/reservations"
)

// DueExpiry decides requests as HoldTx does, and ends due holds of their
// variants in the same transaction, whether or not the units are needed. So a
// caller that decides most of a variant's requests expires its holds as fast as
// it makes them, without another wait for the stock's lock.
//
// It remembers up to which deadline it has ended the holds of a variant, so
// that it does not read the index entries of ended holds again while an old
// snapshot keeps them. Due holds from before that deadline are left to the
// sweep. The zero value is ready to use. It is safe for concurrent use.
type DueExpiry struct {
	mu    sync.Mutex
	ended map[Ref]time.Time // the last deadline
}

const (
	// dueMin is how many due holds of its variants one transaction may end,
	// however few requests it decides. For a variant with many requests the
	// bound is 1.25 times their number, so that a backlog shrinks at any rate
	// of requests.
	dueMin = 500
	// endedMax is how many variants are remembered at most.
	endedMax = 10_000
)

// HoldTx is the function HoldTx, and adds due holds to those that the Holding
// ends. It costs one more statement, in the round trip that locks the stocks.
// It waits only for the locks of the stocks. It does not end a variant's due
// holds if the counters do not cover them, because they would fail the
// transaction; the sweep reports such a variant.
//
// Call Committed once the transaction is committed. A nil DueExpiry ends only
// the due holds whose units the requests need.
//
// The isolation level and the errors are those of the function HoldTx: READ
// COMMITTED, else ErrIsolation; *BacklogError.
func (e *DueExpiry) HoldTx(ctx context.Context, tx pgx.Tx, requests []HoldRequest, terms Terms) (*Holding, error) {
	refs := variantsOf(requests)
	due := new([]reservations.Reservation)
	var then func(*pgx.Batch)
	if e != nil {
		then = func(b *pgx.Batch) {
			due = reservationrows.QueueLockDueOfKeys(b, Kind, e.wanted(requests, refs), time.Time{})
		}
	}
	counters, now, err := lockBy(ctx, tx, lockSQL, refs, then, pg.QueueIsolation)
	if err != nil {
		return nil, err
	}
	in := inputs{now: now, counters: counters, ttl: terms.TTL, lifetimeMax: terms.LifetimeMax}
	in.countExpired(*due)
	return holdTx(ctx, tx, requests, in)
}

// wanted returns how many due holds of each variant are to be locked, and from
// which deadline on.
func (e *DueExpiry) wanted(requests []HoldRequest, refs []Ref) []reservationrows.DueRange {
	count := make(map[Ref]int, len(refs))
	for i := range requests {
		count[Ref{requests[i].TenantID, requests[i].VariantID}]++
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	wanted := make([]reservationrows.DueRange, len(refs))
	for i, ref := range refs {
		n := count[ref]
		wanted[i] = reservationrows.DueRange{
			Resource: reservationrows.Resource{TenantID: ref.TenantID, ResourceKey: ref.VariantID},
			Limit:    max(n+n/4, dueMin/len(refs), 1),
			Since:    e.ended[ref],
		}
	}
	return wanted
}

// Committed records that the transaction of a Holding is committed. On a nil
// DueExpiry it does nothing.
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
		return c == nil || c.Reserved < units(due) || c.Reserved > c.Stock && !c.Backorder && c.Tracked
	})
	for ref, due := range in.expiring {
		in.counters[ref].Reserved -= units(due)
	}
}
