package inventory

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/isolation"
	"github.com/holdfast/holdfast/internal/reservationrows"
	"github.com/holdfast/holdfast/reservations"
)

// Terms are the deadlines of a hold. The zero value of a field is its default.
type Terms struct {
	// TTL is how long a hold lasts where its variant does not say; default 15 minutes.
	TTL time.Duration
	// LifetimeMax is how long a hold can last with all its extensions and changes of quantity; default 2 hours.
	LifetimeMax time.Duration
}

// WithDefaults fills in the zero fields and checks how the terms relate.
func (t Terms) WithDefaults() (Terms, error) {
	if t.TTL == 0 {
		t.TTL = 15 * time.Minute
	}
	if t.LifetimeMax == 0 {
		t.LifetimeMax = 2 * time.Hour
	}
	if t.TTL < time.Second || t.LifetimeMax < t.TTL {
		return t, fmt.Errorf("hold terms: want 1s ≤ ttl (%s) ≤ lifetime_max (%s)", t.TTL, t.LifetimeMax)
	}
	return t, nil
}

// Holding is a group of asks, decided and ready to be written.
type Holding struct {
	// Verdicts has one verdict for each ask, in their order.
	Verdicts []Verdict
	// Now is the reading of the database's clock that the deadlines count from.
	Now time.Time

	decision decision
	expired  []reservations.Reservation
}

// Expired is how many due holds the decision ends.
func (h *Holding) Expired() int { return len(h.expired) }

// errShifted says that due holds were extended between being counted and being locked.
var errShifted = errors.New("holds that were due are not any more")

// reclaimMax is how many due holds one decision gets back at most.
const reclaimMax = 5000

// BacklogError says that the asks need more due holds of a variant back than one transaction should end. Roll back, make
// room with ExpireVariant, and ask again.
type BacklogError struct{ Variant Ref }

// Error names the variant.
func (e *BacklogError) Error() string {
	return fmt.Sprintf("inventory: more than %d due holds of variant %s stand in the way", reclaimMax, e.Variant.VariantID)
}

// HoldTx locks the variants of the asks in (tenant, variant) order and decides the asks in the order given, first come,
// first served. Nothing is written until the caller runs what Queue adds to a batch in the same transaction. A variant
// that comes up short gets its own due holds back first, so a hold past its deadline never blocks an ask, swept or not.
//
// The transaction must be READ COMMITTED, else ErrIsolation: what a cart holds is read once its stocks are locked.
//
// Errors: *BacklogError; what the database says.
func HoldTx(ctx context.Context, tx pgx.Tx, asks []Ask, terms Terms) (*Holding, error) {
	k, err := lockKnownTx(ctx, tx, variantsOf(asks), terms, nil)
	if err != nil {
		return nil, err
	}
	return holdTx(ctx, tx, asks, k)
}

// HoldFreeTx is HoldTx without waiting for stocks that other transactions have locked: their asks get the verdict Locked, and
// nothing is written for them. The isolation level and the errors are HoldTx's.
func HoldFreeTx(ctx context.Context, tx pgx.Tx, asks []Ask, terms Terms) (*Holding, error) {
	refs := variantsOf(asks)
	counters, now, err := lockFreeTx(ctx, tx, refs, isolation.Queue)
	if err != nil {
		return nil, err
	}
	k := known{now: now, counters: counters, ttl: terms.TTL, lifetimeMax: terms.LifetimeMax}
	if len(counters) < len(refs) {
		if k.locked, err = lockedAmong(ctx, tx, refs, counters); err != nil {
			return nil, err
		}
	}
	return holdTx(ctx, tx, asks, k)
}

// lockKnownTx locks the stocks of the variants. then, if not nil, adds statements that run once they are locked.
func lockKnownTx(ctx context.Context, tx pgx.Tx, refs []Ref, terms Terms, then func(*pgx.Batch)) (known, error) {
	counters, now, err := lockBy(ctx, tx, lockSQL, refs, then, isolation.Queue)
	return known{now: now, counters: counters, ttl: terms.TTL, lifetimeMax: terms.LifetimeMax}, err
}

// holdTx decides the asks under the locks of their stocks.
func holdTx(ctx context.Context, tx pgx.Tx, asks []Ask, k known) (_ *Holding, err error) {
	if k.lines, err = linesTx(ctx, tx, asks, &k); err != nil {
		return nil, err
	}
	d := decide(asks, k)
	for attempt := 0; len(d.short) > 0; attempt++ {
		if k.due, err = dueTx(ctx, tx, d.short, k); err != nil {
			return nil, err
		}
		if len(k.due) == 0 {
			break
		}
		withDue := decide(asks, k)
		expired, err := reclaimTx(ctx, tx, k, withDue)
		if err == nil {
			return &Holding{Verdicts: withDue.verdicts, Now: k.now, decision: withDue, expired: append(k.takenHolds(), expired...)}, nil
		}
		if !errors.Is(err, errShifted) || attempt == 3 {
			return nil, err
		}
	}
	return &Holding{Verdicts: d.verdicts, Now: k.now, decision: d, expired: k.takenHolds()}, nil
}

// Queue adds to b what the decision does: due holds expired, counters moved under their guard, replaced reservations
// released, new ones made, and an audit row for each. The rows stand in this order, ask by ask: a reader who adds up the
// record never counts more units than there are.
func (h *Holding) Queue(b *pgx.Batch) {
	moves := make(map[Ref]move, len(h.decision.reserved))
	for ref, demand := range h.decision.reserved {
		moves[ref] = move{reserved: demand.net}
	}
	for _, r := range h.expired {
		ref := Ref{r.TenantID, r.ResourceKey}
		moves[ref] = move{reserved: moves[ref].reserved - r.Quantity}
	}
	reservationrows.QueueEnd(b, expiry(h.Now), h.expired)
	queueMoves(b, moves)
	reservationrows.QueueHolds(b, h.decision.holds)
}

// expiry is how holds past their deadline end.
func expiry(now time.Time) reservationrows.Ending {
	return reservationrows.Ending{To: reservations.Expired, Reason: reservations.TTL, At: now, Origin: audit.Origin{Actor: audit.Job("expiry")}}
}

// linesTx reads what the carts hold of the variants, for the asks whose verdict depends on it.
func linesTx(ctx context.Context, tx pgx.Tx, asks []Ask, k *known) (map[reservationrows.Line][]reservations.Reservation, error) {
	var wanted []reservationrows.Line
	lines := make(map[reservationrows.Line][]reservations.Reservation)
	for i := range asks {
		ask := &asks[i]
		c := k.counters[Ref{ask.TenantID, ask.VariantID}]
		if c == nil || (!ask.Replace && c.MaxPerCart == nil) {
			continue
		}
		line := reservationrows.Line{TenantID: ask.TenantID, HolderID: ask.CartID, ResourceKey: ask.VariantID}
		if _, seen := lines[line]; !seen {
			lines[line] = nil
			wanted = append(wanted, line)
		}
	}
	if len(wanted) == 0 {
		return nil, nil
	}
	held, now, err := reservationrows.LockLinesTx(ctx, tx, Kind, wanted)
	if err != nil {
		return nil, err
	}
	k.now = now
	for _, r := range held {
		if !r.Due(now) {
			line := reservationrows.Line{TenantID: r.TenantID, HolderID: r.HolderID, ResourceKey: r.ResourceKey}
			lines[line] = append(lines[line], r)
		}
	}
	return lines, nil
}

// dueTx counts the due units of the variants that came up short, without those that are taken back already.
func dueTx(ctx context.Context, tx pgx.Tx, short map[Ref]bool, k known) (map[Ref]int64, error) {
	tenants, variants := make([]uuid.UUID, 0, len(short)), make([]string, 0, len(short))
	for ref := range short {
		tenants, variants = append(tenants, ref.TenantID), append(variants, ref.VariantID)
	}
	sums, err := reservationrows.SumDue(ctx, tx, Kind, tenants, variants, k.now)
	if err != nil {
		return nil, err
	}
	due := make(map[Ref]int64, len(sums))
	for _, s := range sums {
		ref := Ref{s.TenantID, s.ResourceKey}
		if left := s.Quantity - units(k.taken[ref]); left > 0 {
			due[ref] = left
		}
	}
	return due, nil
}

// reclaimTx locks as many due holds as the decision needs units from, the longest due first.
func reclaimTx(ctx context.Context, tx pgx.Tx, k known, d decision) ([]reservations.Reservation, error) {
	var refs []reservationrows.Ref
	need := make(map[Ref]int64)
	for ref := range k.due {
		c := k.counters[ref]
		// for the moment of the greatest demand, because the record shows each
		lacking := d.reserved[ref].peak - (c.Stock - c.Reserved)
		if lacking <= 0 || c.Backorder {
			continue
		}
		need[ref] = lacking
		// every hold is of one unit at least, so that many rows suffice
		most := int(min(lacking, int64(reclaimMax-len(refs)))) + len(k.taken[ref])
		due, err := reservationrows.DueOfKey(ctx, tx, ref.TenantID, Kind, ref.VariantID, k.now, most)
		if err != nil {
			return nil, err
		}
		taken := make(map[uuid.UUID]bool, len(k.taken[ref]))
		for i := range k.taken[ref] {
			taken[k.taken[ref][i].ReservationID] = true
		}
		for i := 0; i < len(due) && lacking > 0; i++ {
			if taken[due[i].ReservationID] {
				continue
			}
			refs = append(refs, due[i].Ref())
			lacking -= due[i].Quantity
		}
		if lacking > 0 && len(due) == most {
			return nil, &BacklogError{ref}
		}
	}
	if len(need) == 0 {
		return nil, nil
	}
	locked, _, err := reservationrows.LockTx(ctx, tx, refs)
	if err != nil {
		return nil, err
	}
	for i := range locked {
		if r := &locked[i]; !r.Due(k.now) {
			return nil, errShifted
		}
		need[Ref{locked[i].TenantID, locked[i].ResourceKey}] -= locked[i].Quantity
	}
	for ref, lacking := range need {
		if lacking > 0 {
			return nil, fmt.Errorf("reclaim due holds of variant %s: %w", ref.VariantID, errShifted)
		}
	}
	return locked, nil
}

// takenHolds are the due holds that are taken back, whatever the decision needs.
func (k *known) takenHolds() (taken []reservations.Reservation) {
	for _, due := range k.taken {
		taken = append(taken, due...)
	}
	return taken
}

func variantsOf(asks []Ask) []Ref {
	seen := make(map[Ref]struct{}, 64)
	var refs []Ref
	for i := range asks {
		ref := Ref{asks[i].TenantID, asks[i].VariantID}
		if _, ok := seen[ref]; !ok {
			seen[ref] = struct{}{}
			refs = append(refs, ref)
		}
	}
	return refs
}
