package reservations

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
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
	// too: the kernel expires those when a hold comes up short. HeldOnly,
	// HeldAndCommitted, PeakHeldOnly and PeakHeldAndCommitted are ready-made.
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
type HeldOnly[K, W any] string

// Kind is the resource's kind.
func (k HeldOnly[K, W]) Kind() string { return string(k) }

// Held sums the units held on the key and an equal window.
func (k HeldOnly[K, W]) Held(ctx context.Context, tx pgx.Tx, tenantID uuid.UUID, key K, window W) (int64, error) {
	return sumTaken(ctx, tx, heldSQL, tenantID, string(k), key, window)
}

// HeldAndCommitted is the kind of a resource whose committed units still count:
// tickets, quotas. Embedded, it gives a resource Kind and Held; only Capacity
// is left to write.
type HeldAndCommitted[K, W any] string

// Kind is the resource's kind.
func (k HeldAndCommitted[K, W]) Kind() string { return string(k) }

// Held sums the units held or committed on the key and an equal window.
func (k HeldAndCommitted[K, W]) Held(ctx context.Context, tx pgx.Tx, tenantID uuid.UUID, key K, window W) (int64, error) {
	return sumTaken(ctx, tx, heldAndCommittedSQL, tenantID, string(k), key, window)
}

const heldSQL = `
SELECT coalesce(sum(r.quantity), 0)::bigint
FROM reservations r
WHERE r.tenant_id = $1 AND r.resource_kind = $2 AND r.resource_key = $3 AND r.status = 'held'
  AND coalesce(r.resource_window, '') = $4`

const heldAndCommittedSQL = `
SELECT (SELECT coalesce(sum(r.quantity), 0)
        FROM reservations r
        WHERE r.tenant_id = $1 AND r.resource_kind = $2 AND r.resource_key = $3 AND r.status = 'held'
          AND coalesce(r.resource_window, '') = $4)::bigint
     + (SELECT coalesce(sum(r.quantity), 0)
        FROM reservations r
        WHERE r.tenant_id = $1 AND r.resource_kind = $2 AND r.resource_key = $3 AND r.status = 'committed'
          AND r.resource_kind <> 'inventory.variant' AND coalesce(r.resource_window, '') = $4)::bigint`

func sumTaken(ctx context.Context, tx pgx.Tx, sql string, tenantID uuid.UUID, kind string, key, window any) (sum int64, err error) {
	k, w, err := canonicalPair(key, window)
	if err != nil {
		return 0, err
	}
	if err := tx.QueryRow(ctx, sql, tenantID, kind, k, w).Scan(&sum); err != nil {
		return 0, fmt.Errorf("reservations: sum what is taken of %s %s: %w", kind, k, err)
	}
	return sum, nil
}

// Interval is a window that may overlap others: from start up to, not
// including, end. The scale is the caller's: hours, or microseconds since 1970.
type Interval interface {
	Interval() (start, end int64)
}

// PeakHeldOnly is HeldOnly for windows that may overlap: bookings by the hour,
// 10–12 and 11–13. It counts the units at the moment of the window at which
// most are taken.
type PeakHeldOnly[K any, W Interval] string

// Kind is the resource's kind.
func (k PeakHeldOnly[K, W]) Kind() string { return string(k) }

// Held is the most units held on the key at any one moment of the window. A
// window that ends before it begins, or at the moment it begins, is ErrInvalid.
func (k PeakHeldOnly[K, W]) Held(ctx context.Context, tx pgx.Tx, tenantID uuid.UUID, key K, window W) (int64, error) {
	return peakTaken(ctx, tx, tenantID, string(k), key, window, false)
}

// PeakHeldAndCommitted is HeldAndCommitted for windows that may overlap; see
// PeakHeldOnly.
type PeakHeldAndCommitted[K any, W Interval] string

// Kind is the resource's kind.
func (k PeakHeldAndCommitted[K, W]) Kind() string { return string(k) }

// Held is the most units held or committed on the key at any one moment of the
// window. A window that ends before it begins, or at the moment it begins, is
// ErrInvalid.
func (k PeakHeldAndCommitted[K, W]) Held(ctx context.Context, tx pgx.Tx, tenantID uuid.UUID, key K, window W) (int64, error) {
	return peakTaken(ctx, tx, tenantID, string(k), key, window, true)
}

const windowsSQL = `
SELECT coalesce(r.resource_window, ''), sum(r.quantity)::bigint
FROM reservations r
WHERE r.tenant_id = $1 AND r.resource_kind = $2 AND r.resource_key = $3
  AND (r.status = 'held' OR ($4 AND r.status = 'committed' AND r.resource_kind <> 'inventory.variant'))
GROUP BY r.resource_window`

type windowSum struct {
	Window   string
	Quantity int64
}

func peakTaken[K any, W Interval](ctx context.Context, tx pgx.Tx, tenantID uuid.UUID, kind string, key K, window W, committed bool) (int64, error) {
	start, end := window.Interval()
	if start >= end {
		return 0, fmt.Errorf("%w: a window from %d to %d", ErrInvalid, start, end)
	}
	k, err := canonical("key", key)
	if err != nil {
		return 0, err
	}
	rows, err := tx.Query(ctx, windowsSQL, tenantID, kind, k, committed)
	if err != nil {
		return 0, fmt.Errorf("reservations: sum what is taken of %s %s: %w", kind, k, err)
	}
	sums, err := pgx.CollectRows(rows, pgx.RowToStructByPos[windowSum])
	if err != nil {
		return 0, fmt.Errorf("reservations: sum what is taken of %s %s: %w", kind, k, err)
	}
	steps := make([]step, 0, 2*len(sums))
	for _, s := range sums {
		var other W
		if err := json.Unmarshal([]byte(s.Window), &other); err != nil {
			return 0, &SerializationError{Field: "window", Err: err}
		}
		if from, to := other.Interval(); from < end && start < to {
			steps = append(steps, step{max(from, start), s.Quantity}, step{to, -s.Quantity})
		}
	}
	return peak(steps), nil
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
