package lanes

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/pg"
)

// Lane is the name of a lane, and of its River queue.
type Lane string

// The lanes.
const (
	Hot    Lane = "hot"
	Normal Lane = "normal"
)

// All returns the lanes.
func All() []Lane { return []Lane{Hot, Normal} }

// Stream is an ordered sequence of requests: one slot of a lane. The zero slot
// of the normal lane is the stream of all tenants that are not diverted.
type Stream struct {
	Lane Lane
	Slot int16
}

// DivertedSlot is the slot of the normal lane that takes the requests of
// diverted tenants.
const DivertedSlot int16 = 1

// Wish is the lane that a stock requests, or WishAuto.
type Wish string

// The wishes. WishAuto leaves the choice to the detector.
const (
	WishAuto   Wish = "auto"
	WishHot         = Wish(Hot)
	WishNormal      = Wish(Normal)
)

// Wishes returns all wishes.
func Wishes() []Wish { return []Wish{WishAuto, WishHot, WishNormal} }

// Either returns two or more lanes or wishes as a list for messages: "auto, hot
// or normal".
func Either[S ~string](names []S) string {
	list := make([]string, len(names))
	for i, name := range names {
		list[i] = string(name)
	}
	last := len(list) - 1
	return strings.Join(list[:last], ", ") + " or " + list[last]
}

// Waker inserts wakes.
type Waker interface {
	// InsertTx inserts one wake per stream, in the transaction that gives the
	// stream work.
	InsertTx(ctx context.Context, tx pgx.Tx, streams []Stream) error
}

// ErrIsolation means that a verb was called in a transaction at REPEATABLE READ
// or SERIALIZABLE, whose snapshot may be older than a move between the lanes.
// Postgres has aborted the transaction.
var ErrIsolation = pg.ErrIsolation

// Slots is a SQL table expression with one row per slot of each lane: lane,
// slot, low_water.
const Slots = `(SELECT lane, slot, low_water FROM lane_slots WHERE slot >= 0)`

// ParallelSlots is Slots for the lanes whose slots several drains share: all but
// the hot one. It names the lanes, so that the planner reads their slots by the
// key: the hot lane may have thousands.
const ParallelSlots = `(SELECT lane, slot, low_water FROM lane_slots WHERE slot >= 0 AND lane IN ('normal'))`

const streamsSQL = `SELECT lane, slot FROM ` + Slots + ` slots ORDER BY lane, slot`

// Streams returns every slot of each lane.
func Streams(ctx context.Context, db audit.Querier) ([]Stream, error) {
	streams, err := pg.Select(ctx, db, pgx.RowToStructByPos[Stream], streamsSQL)
	if err != nil {
		return nil, fmt.Errorf("read the streams: %w", err)
	}
	return streams, nil
}

// Variant is a hot variant, or one on its way in or out.
type Variant struct {
	VariantID string
	Slot      int16
	State     string // entering, hot or leaving
	Pinned    bool
	MovedAt   time.Time
}

// TakesNew reports whether requests for the variant that are sent now go to the
// hot lane; false for the zero Variant.
func (v Variant) TakesNew() bool { return v.VariantID != "" && v.State != "leaving" }

// Lane returns the lane of requests for the variant that are sent now.
func (v Variant) Lane() Lane {
	if v.TakesNew() {
		return Hot
	}
	return Normal
}

const lookupSQL = `
SELECT variant_id, slot, state, pinned, moved_at
FROM hot_variants
WHERE tenant_id = $1 AND variant_id = ANY ($2::text[])`

// Lookup returns, by their ids, those of the variants that are hot, entering or
// leaving.
func Lookup(ctx context.Context, db audit.Querier, tenantID uuid.UUID, variantIDs []string) (map[string]Variant, error) {
	list, err := pg.Select(ctx, db, pgx.RowToStructByPos[Variant], lookupSQL, tenantID, variantIDs)
	if err != nil {
		return nil, fmt.Errorf("look up %d variants among the hot ones: %w", len(variantIDs), err)
	}
	found := make(map[string]Variant, len(list))
	for _, v := range list {
		found[v.VariantID] = v
	}
	return found, nil
}

const countVariantsSQL = `SELECT state, count(*) FROM hot_variants GROUP BY state`

// CountVariants returns how many variants of all tenants are in each state:
// entering, hot or leaving.
func CountVariants(ctx context.Context, db audit.Querier) (map[string]int64, error) {
	type count struct {
		State string
		Count int64
	}
	found, err := pg.Select(ctx, db, pgx.RowToStructByPos[count], countVariantsSQL)
	if err != nil {
		return nil, fmt.Errorf("count hot variants: %w", err)
	}
	counts := make(map[string]int64, len(found))
	for _, f := range found {
		counts[f.State] = f.Count
	}
	return counts, nil
}

// Diversion is the move of a tenant's requests for variants that are not hot to
// a separate stream: since when and why.
type Diversion struct {
	Slot  int16
	Since time.Time
	Why   string
}

const diversionSQL = `SELECT slot, diverted_at, why FROM diverted_tenants WHERE tenant_id = $1`

// DiversionOf returns the tenant's diversion, nil if it is not diverted.
func DiversionOf(ctx context.Context, db audit.Querier, tenantID uuid.UUID) (*Diversion, error) {
	diversion, err := pg.SelectOne(ctx, db, pgx.RowToAddrOfStructByPos[Diversion], diversionSQL, tenantID)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the diversion: %w", err)
	}
	return diversion, nil
}

// RouteJoin and RouteColumns are parts of a SQL statement that inserts
// requests: they choose the stream of a row a with tenant_id and variant_id.
// RouteColumns are two expressions, the stream's lane and slot. NormalSlot is the
// slot of a variant that is not hot. Its subquery on one tenant runs only if some
// tenant is diverted.
//
// The transaction must be READ COMMITTED: an older snapshot routes by a rule
// that no lane follows any more.
const (
	RouteJoin = `LEFT JOIN hot_variants h ON h.tenant_id = a.tenant_id AND h.variant_id = a.variant_id AND h.state <> 'leaving'`

	RouteColumns = `CASE WHEN h.slot IS NULL THEN 'normal' ELSE 'hot' END AS lane, coalesce(h.slot, ` + NormalSlot + `) AS slot`

	NormalSlot = `coalesce(CASE WHEN EXISTS (SELECT FROM diverted_tenants)
                      THEN (SELECT d.slot FROM diverted_tenants d WHERE d.tenant_id = a.tenant_id) END, 0)`
)

// LeavingSlot is a SQL expression for the statement of RouteJoin to return: the
// hot slot whose drain decides the request r, which was routed to another lane
// because its variant is leaving the hot lane; else NULL.
// While no variant is leaving, the rows look nothing up.
const LeavingSlot = `CASE WHEN r.lane <> 'hot' AND EXISTS (SELECT FROM hot_variants WHERE state = 'leaving')
     THEN (SELECT h.slot FROM hot_variants h WHERE h.tenant_id = r.tenant_id AND h.variant_id = r.variant_id) END`
