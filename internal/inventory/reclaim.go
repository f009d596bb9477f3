package inventory

import (
	"context"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/reservationrows"
	"github.com/holdfast/holdfast/reservations"
)

// dueTx counts the due units of the variants that came up short, without those
// of in.expiring.
func dueTx(ctx context.Context, tx pgx.Tx, short map[Ref]bool, in inputs) (map[Ref]int64, error) {
	tenants, variants := make([]uuid.UUID, 0, len(short)), make([]string, 0, len(short))
	for ref := range short {
		tenants, variants = append(tenants, ref.TenantID), append(variants, ref.VariantID)
	}
	sums, err := dueHoldsOf.Sum(ctx, tx, tenants, variants, in.now)
	if err != nil {
		return nil, err
	}
	due := make(map[Ref]int64, len(sums))
	for _, s := range sums {
		ref := Ref{s.TenantID, s.ResourceKey}
		if left := s.Quantity - units(in.expiring[ref]); left > 0 {
			due[ref] = left
		}
	}
	return due, nil
}

// reclaimTx decides the requests with the units of due holds, and returns the
// holds that must expire for it, which it has locked. The units of due holds
// that other transactions have locked are counted as lockedDue.
func (in *inputs) reclaimTx(ctx context.Context, tx pgx.Tx, requests []HoldRequest) (decision, []reservations.Reservation, error) {
	d := decide(requests, *in) // as if all due holds could be locked
	lacking := d.lacking(in)
	if len(lacking) == 0 {
		return d, nil, nil
	}
	locked, err := in.lockDueOfTx(ctx, tx, lacking)
	if err != nil {
		return d, nil, err
	}
	missing := false
	for ref, n := range lacking {
		if got := units(locked[ref]); got < n {
			if in.lockedDue == nil {
				in.lockedDue = make(map[Ref]int64)
			}
			in.lockedDue[ref], in.due[ref] = in.due[ref]-got, got
			missing = true
		}
	}
	if missing {
		d = decide(requests, *in)
		lacking = d.lacking(in)
	}
	var expired []reservations.Reservation
	for ref, n := range lacking {
		for i := 0; i < len(locked[ref]) && n > 0; i++ {
			expired = append(expired, locked[ref][i])
			n -= locked[ref][i].Quantity
		}
	}
	return d, expired, nil
}

// lacking returns how many units of due holds the decision needs, by variant.
func (d *decision) lacking(in *inputs) map[Ref]int64 {
	lacking := make(map[Ref]int64)
	for ref := range in.due {
		c := in.counters[ref]
		// at the moment of the greatest demand, because the record shows every
		// moment
		if n := d.reserved[ref].peak - (c.capacity() - c.Reserved); n > 0 && c.bounded() {
			lacking[ref] = n
		}
	}
	return lacking
}

// lockDueOfTx locks due holds of the variants with as many units as are lacking,
// the longest due first, without those of in.expiring. It has fewer units if
// other transactions have locked the rest.
func (in *inputs) lockDueOfTx(ctx context.Context, tx pgx.Tx, lacking map[Ref]int64) (map[Ref][]reservations.Reservation, error) {
	wanted := make([]reservationrows.DueLimit, 0, len(lacking))
	left := int64(expireMax)
	for ref, n := range lacking {
		rows := min(n, left) // every hold has at least one unit
		left -= rows
		wanted = append(wanted, dueLimit(ref, int(rows)+len(in.expiring[ref])))
	}
	b := &pgx.Batch{}
	due := dueHoldsOf.QueueLock(b, wanted, in.now)
	if err := tx.SendBatch(ctx, b).Close(); err != nil {
		return nil, fmt.Errorf("lock due holds of %d variants: %w", len(wanted), err)
	}
	found := make(map[Ref][]reservations.Reservation, len(lacking))
	for _, r := range *due {
		ref := Ref{r.TenantID, r.ResourceKey}
		found[ref] = append(found[ref], r)
	}
	for _, w := range wanted {
		ref := Ref{w.TenantID, w.ResourceKey}
		full := len(found[ref]) == w.Limit
		counted := idsOf(in.expiring[ref])
		found[ref] = slices.DeleteFunc(found[ref], func(r reservations.Reservation) bool { return counted[r.ReservationID] })
		if full && units(found[ref]) < lacking[ref] {
			return nil, &BacklogError{ref}
		}
	}
	return found, nil
}

// unfit returns the outcome of a request that needs more units of the variant
// than are free, and takes any: see unitPool.refused for the others. locked is
// how many units are in due holds that other transactions have locked. Such a
// unit may become free, or be committed or held for longer.
//
// The request is OutOfStock if it would not fit even if all those units became
// free, because of the requests that wait for them already. Of these it counts
// the ones that need no more units than itself: whenever it fits, they fit too,
// being earlier. Otherwise it is LockedDue, and reserves nothing meanwhile. So
// later requests that fit what is free are granted, and a request never takes a
// unit that an earlier request of the same size waits for. Of one size, no more
// requests wait than would fit if all locked units became free.
func (d *decision) unfit(ref Ref, needed, free, locked int64) Outcome {
	if locked == 0 {
		return OutOfStock
	}
	most := free + locked
	for _, ahead := range d.waiting[ref] {
		if ahead <= needed {
			most -= ahead
		}
	}
	if most < needed {
		return OutOfStock
	}
	d.waiting[ref] = append(d.waiting[ref], needed)
	return LockedDue
}
