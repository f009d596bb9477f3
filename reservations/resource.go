package reservations

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// Resource says how much there is of something, and how much of it is taken. It is all that a kernel asks of whoever
// owns the thing.
//
// Key names an instance: a show, a product, a client. Window narrows it: a time range, a date; NoWindow where there is
// none. Both are serialised canonically: equal values make equal rows.
//
// Capacity and Held run in the transaction of the hold, under the lock of (tenant, kind, key), and read through tx, so
// that they see what the lock guards. TenantOf(ctx) is the tenant.
type Resource[K, W any] interface {
	// Kind names the resource in the reservations table, in dotted words: "venue.seat". It never changes.
	Kind() string
	// Capacity is how many units there are.
	Capacity(ctx context.Context, tx pgx.Tx, key K, window W) (int64, error)
	// Held is how many of them are taken. It counts holds past their deadline too: the kernel expires those itself when
	// it comes up short. HeldOnly and HeldAndCommitted are ready-made.
	Held(ctx context.Context, tx pgx.Tx, key K, window W) (int64, error)
}

// DisjointWindows is embedded in a resource whose windows never overlap: dates, minutes. Its holds on different windows
// of one key do not wait for each other.
type DisjointWindows struct{}

func (DisjointWindows) windowsAreDisjoint() {}

// NoWindow is the window of a resource that has none.
type NoWindow struct{}

type tenantKey struct{}

// TenantOf is the tenant that a kernel asks a resource for.
func TenantOf(ctx context.Context) uuid.UUID {
	tenantID, _ := ctx.Value(tenantKey{}).(uuid.UUID)
	return tenantID
}

// HeldOnly is the kind of a resource whose committed units no longer count: they have left the capacity, as goods leave a
// stock. Embedded, it gives a resource Kind and Held; only Capacity is left to write.
type HeldOnly[K, W any] string

// Kind is the resource's kind.
func (k HeldOnly[K, W]) Kind() string { return string(k) }

// Held sums the units held on the key and an equal window.
func (k HeldOnly[K, W]) Held(ctx context.Context, tx pgx.Tx, key K, window W) (int64, error) {
	return sumTaken(ctx, tx, heldSQL, string(k), key, window)
}

// HeldAndCommitted is the kind of a resource whose committed units go on counting: tickets, quotas. Embedded, it gives a
// resource Kind and Held; only Capacity is left to write.
type HeldAndCommitted[K, W any] string

// Kind is the resource's kind.
func (k HeldAndCommitted[K, W]) Kind() string { return string(k) }

// Held sums the units held or committed on the key and an equal window.
func (k HeldAndCommitted[K, W]) Held(ctx context.Context, tx pgx.Tx, key K, window W) (int64, error) {
	return sumTaken(ctx, tx, heldAndCommittedSQL, string(k), key, window)
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

func sumTaken(ctx context.Context, tx pgx.Tx, sql, kind string, key, window any) (sum int64, err error) {
	k, w, err := canonicalPair(key, window)
	if err != nil {
		return 0, err
	}
	if err := tx.QueryRow(ctx, sql, TenantOf(ctx), kind, k, w).Scan(&sum); err != nil {
		return 0, fmt.Errorf("reservation: sum what is taken of %s %s: %w", kind, k, err)
	}
	return sum, nil
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

// SumOverlapping sums the units taken on the key in all windows for which overlaps says yes, for resources whose windows
// may overlap (10–12 and 11–13). Committed units count if committed is set. The sum is never less than what is taken at
// any one moment of the window, and may be more: two holds that do not overlap each other both count.
func SumOverlapping[K, W any](ctx context.Context, tx pgx.Tx, kind string, key K, committed bool, overlaps func(W) bool) (int64, error) {
	k, err := canonical("key", key)
	if err != nil {
		return 0, err
	}
	rows, err := tx.Query(ctx, windowsSQL, TenantOf(ctx), kind, k, committed)
	if err != nil {
		return 0, fmt.Errorf("reservation: sum what is taken of %s %s: %w", kind, k, err)
	}
	taken, err := pgx.CollectRows(rows, pgx.RowToStructByPos[windowSum])
	if err != nil {
		return 0, fmt.Errorf("reservation: sum what is taken of %s %s: %w", kind, k, err)
	}
	var total int64
	for _, t := range taken {
		var window W
		if t.Window != "" {
			if err := json.Unmarshal([]byte(t.Window), &window); err != nil {
				return 0, &SerializationError{Field: "window", Err: err}
			}
		}
		if overlaps(window) {
			total += t.Quantity
		}
	}
	return total, nil
}
