package requestrows

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/lanes"
	"github.com/holdfast/holdfast/requests"
)

// Observe returns the request once it is finished, or in its present state
// after the interval. It is for callers that follow a request for a long time:
// unlike Wait, it reads unfinished requests and their positions in groups, so
// the load on the database depends little on the number of callers.
//
// Errors: ErrNotFound, errors of the database, and ctx's error if ctx ends
// first. An outage is returned after the interval at the earliest.
func (w *Watcher) Observe(ctx context.Context, tenantID, requestID uuid.UUID, interval time.Duration) (requests.View, error) {
	waiting := w.join(Ref{tenantID, requestID}, requests.Status.Finished)
	over := time.NewTimer(interval)
	defer over.Stop()
	select {
	case <-waiting.found:
	case <-ctx.Done():
	case <-over.C:
		w.mu.Lock()
		waiting.present = true
		w.enqueue(waiting)
		w.mu.Unlock()
	}
	select {
	case <-waiting.found:
		link(ctx, &waiting.view.Request)
		return waiting.view, waiting.err
	case <-ctx.Done():
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.leave(waiting)
	return requests.View{}, ctx.Err()
}

// aheadSQL returns, for each variant, the sequence numbers of its oldest
// undecided requests, in their order.
const aheadSQL = `
SELECT v.place, ahead.sequence
FROM unnest($1::smallint[], $2::uuid[], $3::text[], $4::bigint[]) WITH ORDINALITY AS v (slot, tenant_id, variant_id, before, place)
CROSS JOIN LATERAL (
    SELECT r.sequence
    FROM reservation_requests r
    WHERE r.lane = 'hot' AND r.slot = v.slot AND r.sequence < v.before
      AND r.sequence > (SELECT s.low_water FROM lane_slots s WHERE s.lane = 'hot' AND s.slot = v.slot)
      AND r.status IN ('queued', 'processing') AND r.tenant_id = v.tenant_id AND r.variant_id = v.variant_id
    ORDER BY r.sequence
    LIMIT $5
) AS ahead
ORDER BY v.place, ahead.sequence`

// hotVariant is a variant in a slot of the hot lane.
type hotVariant struct {
	slot      int16
	tenantID  uuid.UUID
	variantID string
}

// addPositions adds their positions to the requests that are undecided in the hot
// lane, or wait in line. It reads the requests ahead once for each variant.
func addPositions(ctx context.Context, db Querier, views map[Ref]requests.View) error {
	if err := addLinePlaces(ctx, db, views); err != nil {
		return err
	}
	places := make(map[hotVariant]int)
	var slots []int16
	var tenants [][16]byte
	var variants []string
	var before []int64
	for _, v := range views {
		if v.Status.Decided() || v.Lane != lanes.Hot {
			continue
		}
		of := hotVariant{v.Slot, v.TenantID, v.VariantID}
		place, known := places[of]
		if !known {
			place = len(slots)
			places[of] = place
			slots, tenants, variants, before = append(slots, v.Slot), append(tenants, v.TenantID), append(variants, v.VariantID), append(before, 0)
		}
		before[place] = max(before[place], v.Sequence)
	}
	if len(places) == 0 {
		return nil
	}
	ahead := make([][]int64, len(places))
	rows, err := db.Query(ctx, aheadSQL, slots, tenants, variants, before, PositionMax)
	if err != nil {
		return fmt.Errorf("positions of requests for %d variants: %w", len(places), err)
	}
	type undecided struct{ Place, Sequence int64 }
	oldest, err := pgx.CollectRows(rows, pgx.RowToStructByPos[undecided])
	if err != nil {
		return fmt.Errorf("positions of requests for %d variants: %w", len(places), err)
	}
	for _, r := range oldest {
		ahead[r.Place-1] = append(ahead[r.Place-1], r.Sequence)
	}
	for ref, v := range views {
		place, known := places[hotVariant{v.Slot, v.TenantID, v.VariantID}]
		if known && !v.Status.Decided() && v.Lane == lanes.Hot {
			position, _ := slices.BinarySearch(ahead[place], v.Sequence)
			v.Position = new(int64(position))
			views[ref] = v
		}
	}
	return nil
}
