package reservations

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/reservationrows"
)

// Resource has the capacity of something, and how much of it is taken. The
// owner of the thing implements it for a kernel.
//
// Key names an instance: a show, a product, a client. Window narrows it: a time
// range, a date; NoWindow for a resource without windows. Both are serialised
// canonically: equal values make equal rows.
//
// Capacity and Held run in the transaction of the hold, under the lock of
// (tenant, kind, key), and read through tx, so that they see what the lock
// guards. They may be called several times for one hold: Held first, then
// Capacity; both again after a rejection, because another transaction may have
// changed the numbers; and in another transaction after a deadlock.
//
// Held counts reservations of the kind. While a hold has the lock, no other
// hold is added, so Held only falls. If Held counted anything else that rises
// meanwhile, units could be sold twice. If a commit lowers Capacity, one
// transaction must do both.
type Resource[K, W any] interface {
	// Kind names the resource in the reservations table, in dotted words:
	// "venue.seat". It never changes.
	Kind() string
	// Capacity is how many units the tenant has.
	Capacity(ctx context.Context, tx pgx.Tx, tenantID uuid.UUID, key K, window W) (int64, error)
	// Held is how many of them are taken. It counts holds past their deadline
	// too: the kernel expires those when a hold comes up short. HeldOnly and
	// HeldAndCommitted are ready-made.
	Held(ctx context.Context, tx pgx.Tx, tenantID uuid.UUID, key K, window W) (int64, error)
}

// DisjointWindows is embedded in a resource whose windows never overlap: dates,
// minutes. Its holds on different windows of one key do not wait for each
// other.
type DisjointWindows struct{}

func (DisjointWindows) windowsAreDisjoint() {}

// NoWindow is the window of a resource without windows.
type NoWindow struct{}

// HeldOnly is the kind of a resource whose committed units no longer count:
// they have left the capacity, as goods leave a stock. Embedded, it gives a
// resource Kind and Held; only Capacity is left to write.
//
// Windows that may overlap (bookings by the hour, 10–12 and 11–13) have a
// method Interval() (start, end int64): from start up to, not including, end,
// on a scale of the caller: hours, or microseconds since 1970. Held is then the
// most units that are taken at any one moment of the window. All other windows
// are either equal or have nothing in common.
type HeldOnly[K, W any] string

// Kind is the resource's kind.
func (k HeldOnly[K, W]) Kind() string { return string(k) }

// Held is how many units are held on the key and the window. A window that ends
// before it begins, or at the moment it begins, is ErrInvalid.
func (k HeldOnly[K, W]) Held(ctx context.Context, tx pgx.Tx, tenantID uuid.UUID, key K, window W) (int64, error) {
	return taken(ctx, tx, tenantID, string(k), key, window, false)
}

// HeldAndCommitted is the kind of a resource whose committed units still count:
// tickets, quotas, rooms. Embedded, it gives a resource Kind and Held; only
// Capacity is left to write. Windows are as for HeldOnly.
type HeldAndCommitted[K, W any] string

// Kind is the resource's kind.
func (k HeldAndCommitted[K, W]) Kind() string { return string(k) }

// Held is how many units are held or committed on the key and the window. A
// window that ends before it begins, or at the moment it begins, is ErrInvalid.
func (k HeldAndCommitted[K, W]) Held(ctx context.Context, tx pgx.Tx, tenantID uuid.UUID, key K, window W) (int64, error) {
	return taken(ctx, tx, tenantID, string(k), key, window, true)
}

// interval is a window that may overlap others.
type interval interface {
	Interval() (start, end int64)
}

func intervalOf[W any](window *W) (interval, bool) {
	if i, ok := any(*window).(interval); ok {
		return i, true
	}
	i, ok := any(window).(interval)
	return i, ok
}

// checkInterval returns an error for a window with another method Interval,
// whose overlaps would not be counted.
func checkInterval[W any]() error {
	for _, t := range []reflect.Type{reflect.TypeFor[W](), reflect.TypeFor[*W]()} {
		if _, named := t.MethodByName("Interval"); named && !t.Implements(reflect.TypeFor[interval]()) {
			return fmt.Errorf("%w: the window %s has another method than Interval() (start, end int64)", ErrInvalid, t)
		}
	}
	return nil
}

// takenFrom is the first deadline that counts: of any time if committed units
// count ($4), else by the mark of the sweeps, before which nothing is held.
var takenFrom = reservationrows.MarkOf("m.resource_kind = $2 AND NOT $4")

var sumSQL = `
SELECT coalesce(sum(r.quantity), 0)::bigint
FROM reservations r
WHERE r.tenant_id = $1 AND r.resource_kind = $2 AND r.resource_key = $3 AND r.quantity > 0 AND r.expires_at >= ` + takenFrom + `
  AND (r.status = 'held' OR ($4 AND r.status = 'committed')) AND coalesce(r.resource_window, '') = $5`

func taken[K, W any](ctx context.Context, tx pgx.Tx, tenantID uuid.UUID, kind string, key K, window W, committed bool) (sum int64, err error) {
	k, w, err := canonicalPair(key, window)
	if err != nil {
		return 0, err
	}
	if i, ok := intervalOf(&window); ok {
		sum, err = peakTaken[W](ctx, tx, tenantID, kind, k, i, committed)
	} else {
		err = tx.QueryRow(ctx, sumSQL, tenantID, kind, k, committed, w).Scan(&sum)
	}
	if err != nil {
		return 0, fmt.Errorf("reservations: sum what is taken of %s %s: %w", kind, k, err)
	}
	return sum, nil
}

var windowsSQL = `
SELECT coalesce(r.resource_window, ''), sum(r.quantity)::bigint
FROM reservations r
WHERE r.tenant_id = $1 AND r.resource_kind = $2 AND r.resource_key = $3 AND r.quantity > 0 AND r.expires_at >= ` + takenFrom + `
  AND (r.status = 'held' OR ($4 AND r.status = 'committed'))
GROUP BY r.resource_window`

// peakTaken is the most units taken at any one moment of a window.
func peakTaken[W any](ctx context.Context, tx pgx.Tx, tenantID uuid.UUID, kind, key string, window interval, committed bool) (int64, error) {
	start, end := window.Interval()
	if start >= end {
		return 0, fmt.Errorf("%w: a window from %d to %d", ErrInvalid, start, end)
	}
	var serialized string
	var units int64
	var steps []step
	rows, err := tx.Query(ctx, windowsSQL, tenantID, kind, key, committed) //nolint:rowserrcheck // ForEachRow returns it
	if err != nil {
		return 0, err
	}
	_, err = pgx.ForEachRow(rows, []any{&serialized, &units}, func() error {
		var decoded W
		if err := json.Unmarshal([]byte(serialized), &decoded); err != nil {
			return unserialisable("window", err)
		}
		other, _ := intervalOf(&decoded)
		if from, to := other.Interval(); from < end && start < to {
			steps = append(steps, step{max(from, start), units}, step{to, -units})
		}
		return nil
	})
	return peak(steps), err
}

// step is a moment at which units are taken or, if negative, given back.
type step struct{ at, units int64 }

// peak is the highest sum of the steps up to any moment. Units that are given
// back at a moment no longer count for those that are taken at it.
func peak(steps []step) (highest int64) {
	slices.SortFunc(steps, func(a, b step) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.units, b.units)) })
	var taken int64
	for _, s := range steps {
		taken += s.units
		highest = max(highest, taken)
	}
	return highest
}
