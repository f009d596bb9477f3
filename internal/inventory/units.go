package inventory

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/reservationrows"
	"github.com/holdfast/holdfast/internal/unitrows"
	"github.com/holdfast/holdfast/reservations"
)

// ValidateUnits checks the units that a caller names: none, or n distinct ids of
// 1 to [MaxIDLength] characters, at most unitrows.UnitsMax.
//
// The error is an [*InvalidError] that names unit_ids, or one of them by its
// place: unit_ids[2].
func ValidateUnits(ids []string, n int) error {
	switch {
	case len(ids) == 0:
		return nil
	case len(ids) > unitrows.UnitsMax:
		return &InvalidError{Field: "unit_ids", Message: fmt.Sprintf("must be at most %d units", unitrows.UnitsMax)}
	case len(ids) != n:
		return &InvalidError{Field: "unit_ids", Message: fmt.Sprintf("must be as many as the quantity, %d", n)}
	}
	seen := make(map[string]bool, len(ids))
	for i, id := range ids {
		field := fmt.Sprintf("unit_ids[%d]", i)
		if err := ValidateID(field, id); err != nil {
			return err
		}
		if seen[id] {
			return &InvalidError{Field: field, Message: "is given twice"}
		}
		seen[id] = true
	}
	return nil
}

// blockUnits are units of a block, read under the lock of its stock: enough of
// the active ones for the requests that want any, and all that the requests
// name.
type blockUnits struct {
	active []unitrows.Unit // in the order of their positions
	named  []unitrows.Unit // in any status
}

// unitWishes is what the requests want of one block.
type unitWishes struct {
	named      []string
	anyUnits   int // of the requests that want any
	contiguous int // how many of them want neighbours
	widest     int // the most neighbours that one of them wants
}

// readUnitsTx reads the units that the requests may get, if a variant of the
// requests is a block. First it ends all due holds of the block, so that a unit
// whose hold is past its deadline is active.
//
// The stocks are locked, and every change of a unit of these blocks is made
// under that lock.
//
// Errors: *BacklogError; the database's.
func (in *inputs) readUnitsTx(ctx context.Context, tx pgx.Tx, requests []HoldRequest) error {
	wishes := make(map[Ref]*unitWishes)
	for i := range requests {
		r := &requests[i]
		ref := Ref{r.TenantID, r.VariantID}
		if c := in.counters[ref]; c == nil || !c.NamedUnits || r.Stale || r.Quantity > unitrows.UnitsMax {
			continue
		}
		w := wishes[ref]
		if w == nil {
			w = &unitWishes{}
			wishes[ref] = w
		}
		w.add(r, in.cartHolds)
	}
	if len(wishes) == 0 {
		return nil
	}
	in.units, in.lockedUnits = make(map[Ref]blockUnits, len(wishes)), make(map[Ref]map[string]bool)
	if in.lockedDue == nil {
		in.lockedDue = make(map[Ref]int64)
	}
	// in one order, because ending due holds locks them
	blocks := slices.SortedFunc(maps.Keys(wishes), func(a, b Ref) int {
		return cmp.Or(bytes.Compare(a.TenantID[:], b.TenantID[:]), cmp.Compare(a.VariantID, b.VariantID))
	})
	for _, ref := range blocks {
		w := wishes[ref]
		if err := in.endDueTx(ctx, tx, ref); err != nil {
			return err
		}
		units, err := w.readTx(ctx, tx, unitrows.Block{TenantID: ref.TenantID, Block: ref.VariantID})
		if err != nil {
			return err
		}
		in.units[ref] = units
	}
	return nil
}

func (w *unitWishes) add(r *HoldRequest, cartHolds map[reservationrows.HolderKey][]reservations.Reservation) {
	if r.Replace {
		own := cartHolds[reservationrows.HolderKey{TenantID: r.TenantID, HolderID: r.CartID, ResourceKey: r.VariantID}]
		for i := range own {
			w.named = append(w.named, own[i].UnitIDs...)
		}
	}
	switch {
	case len(r.UnitIDs) > 0:
		w.named = append(w.named, r.UnitIDs...)
	case r.Contiguous:
		w.contiguous++
		w.widest = max(w.widest, int(r.Quantity))
		w.anyUnits += int(r.Quantity)
	default:
		w.anyUnits += int(r.Quantity)
	}
}

// unitsPage is how many active units are read at a time where neighbours are
// wanted.
const unitsPage = 2000

// readTx reads the units. Named units may be among the first active ones, so
// that many more are read.
func (w *unitWishes) readTx(ctx context.Context, tx pgx.Tx, block unitrows.Block) (units blockUnits, err error) {
	if len(w.named) > 0 {
		slices.Sort(w.named)
		w.named = slices.Compact(w.named)
		units.named, err = unitrows.Get(ctx, tx, block, w.named)
		if err != nil {
			return units, err
		}
	}
	if w.anyUnits == 0 {
		return units, nil
	}
	need := w.anyUnits + len(w.named)
	if w.contiguous == 0 {
		units.active, err = unitrows.ListActive(ctx, tx, block, unitrows.Unit{}, need)
		return units, err
	}
	for last := (unitrows.Unit{}); ; {
		page, err := unitrows.ListActive(ctx, tx, block, last, unitsPage)
		if err != nil {
			return units, err
		}
		units.active = append(units.active, page...)
		if len(page) < unitsPage || len(units.active) >= need && w.fits(units.active) {
			return units, nil
		}
		last = page[len(page)-1]
	}
}

// fits reports whether every request for neighbours finds some among the units,
// whatever the other requests take: a run of neighbours has room for its length
// divided by the widest wish, and each request for neighbours and each other
// unit that is taken uses up the room for one.
func (w *unitWishes) fits(active []unitrows.Unit) bool {
	room, run := 0, 0
	for i := range active {
		if i > 0 && active[i].Position != active[i-1].Position+1 {
			room += run / w.widest
			run = 0
		}
		run++
	}
	return room+run/w.widest >= w.contiguous+w.anyUnits+len(w.named)
}

// endDueTx ends the due holds of a block, except those that other transactions
// have locked.
func (in *inputs) endDueTx(ctx context.Context, tx pgx.Tx, ref Ref) error {
	due, err := dueHoldsOf.Read(ctx, tx, dueLimit(ref, expireMax), in.now)
	if err != nil {
		return err
	}
	if len(due) == expireMax {
		return &BacklogError{ref}
	}
	if len(due) == 0 {
		return nil
	}
	locked, _, err := reservationrows.TryLockTx(ctx, tx, reservationrows.Refs(due))
	if err != nil {
		return err
	}
	in.leaveDue(ref, due, locked)
	counted := idsOf(in.expiring[ref])                                                                  // the counter does not include these
	locked = slices.DeleteFunc(locked, func(r reservations.Reservation) bool { return !r.Due(in.now) }) // extended meanwhile
	if err := endTx(ctx, tx, locked, expiry(in.now)); err != nil {
		return fmt.Errorf("expire due holds of block %s: %w", ref.VariantID, err)
	}
	for i := range locked {
		if !counted[locked[i].ReservationID] {
			in.counters[ref].Reserved -= locked[i].Quantity
		}
	}
	in.ended += len(locked)
	delete(in.expiring, ref)
	return nil
}

// leaveDue records the due holds of a block that are not locked here.
func (in *inputs) leaveDue(ref Ref, due, locked []reservations.Reservation) {
	if len(locked) == len(due) {
		return
	}
	own := idsOf(locked)
	units := make(map[string]bool)
	for i := range due {
		if own[due[i].ReservationID] {
			continue
		}
		in.lockedDue[ref] += due[i].Quantity
		for _, id := range due[i].UnitIDs {
			units[id] = true
		}
	}
	in.lockedUnits[ref] = units
}

func idsOf(rs []reservations.Reservation) map[uuid.UUID]bool {
	ids := make(map[uuid.UUID]bool, len(rs))
	for i := range rs {
		ids[rs[i].ReservationID] = true
	}
	return ids
}
