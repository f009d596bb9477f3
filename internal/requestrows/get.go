package requestrows

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/lanes"
	"github.com/holdfast/holdfast/internal/reservationrows"
	"github.com/holdfast/holdfast/internal/telemetry"
	"github.com/holdfast/holdfast/requests"
	"github.com/holdfast/holdfast/reservations"
)

// PositionMax is the highest position that is reported. It means that many or
// more.
const PositionMax = 1000

const getSQL = `SELECT ` + columns + ` FROM reservation_requests r WHERE r.tenant_id = $1 AND r.request_id = $2`

const positionSQL = `
SELECT count(*)
FROM (
    SELECT
    FROM reservation_requests ahead
    WHERE ahead.lane = 'hot' AND ahead.slot = $1 AND ahead.sequence < $2
      AND ahead.sequence > (SELECT low_water FROM lane_slots WHERE lane = 'hot' AND slot = $1)
      AND ahead.status IN ('queued', 'processing') AND ahead.tenant_id = $3 AND ahead.variant_id = $4
    LIMIT $5
) counted`

// Get returns one request of the tenant with its position and its reservation.
//
// Errors: ErrNotFound.
func Get(ctx context.Context, db Querier, tenantID, requestID uuid.UUID) (requests.View, error) {
	r, err := getRow(ctx, db, tenantID, requestID)
	if err != nil {
		return requests.View{}, err
	}
	return ReadView(ctx, db, r)
}

// ReadView returns a request with its current position and reservation.
func ReadView(ctx context.Context, db Querier, r requests.Request) (requests.View, error) {
	v := requests.View{Request: r}
	switch {
	case r.Lines != nil:
		views := map[Ref]requests.View{RefOf(&r): v}
		err := addOutcomes(ctx, db, views)
		return views[RefOf(&r)], err
	case r.Status == requests.Done:
		held, err := reservations.Get(ctx, db, r.TenantID, r.RequestID)
		if errors.Is(err, reservations.ErrNotFound) {
			return v, nil // an untracked variant
		}
		v.Reservation = &held
		return v, err
	case r.Status == requests.Waiting:
		views := map[Ref]requests.View{RefOf(&r): v}
		err := addLinePlaces(ctx, db, views)
		return views[RefOf(&r)], err
	case !r.Status.Finished() && r.Lane == lanes.Hot:
		rows, err := db.Query(ctx, positionSQL, r.Slot, r.Sequence, r.TenantID, r.VariantID, PositionMax)
		if err != nil {
			return v, fmt.Errorf("position of request %s: %w", r.RequestID, err)
		}
		ahead, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[int64])
		v.Position = &ahead
		return v, err
	}
	return v, nil
}

func getRow(ctx context.Context, db Querier, tenantID, requestID uuid.UUID) (requests.Request, error) {
	rows, err := db.Query(ctx, getSQL, tenantID, requestID)
	if err != nil {
		return requests.Request{}, fmt.Errorf("get request %s: %w", requestID, err)
	}
	r, err := pgx.CollectExactlyOneRow(rows, toRequest)
	if errors.Is(err, pgx.ErrNoRows) {
		return requests.Request{}, ErrNotFound
	}
	if err != nil {
		return requests.Request{}, fmt.Errorf("get request %s: %w", requestID, err)
	}
	link(ctx, &r)
	return r, nil
}

// link links the context's span to the trace in which the request was admitted.
func link(ctx context.Context, r *requests.Request) {
	var links telemetry.Links
	links.Add(r.TraceParent)
	links.To(ctx)
}

const getAllSQL = `
SELECT ` + columns + `
FROM unnest($1::uuid[], $2::uuid[]) AS wanted (tenant_id, request_id)
JOIN reservation_requests r USING (tenant_id, request_id)`

// getAll returns the requests that exist, without positions. Done requests have
// their reservations.
func getAll(ctx context.Context, db Querier, refs []Ref) (map[Ref]requests.View, error) {
	tenants, ids := make([][16]byte, len(refs)), make([][16]byte, len(refs))
	for i, ref := range refs {
		tenants[i], ids[i] = ref.TenantID, ref.RequestID
	}
	found, err := collect(ctx, db, getAllSQL, tenants, ids)
	if err != nil {
		return nil, fmt.Errorf("get %d requests: %w", len(refs), err)
	}
	views := make(map[Ref]requests.View, len(found))
	var done []reservationrows.Ref
	for _, r := range found {
		views[RefOf(&r)] = requests.View{Request: r}
		if r.Status == requests.Done && r.Lines == nil {
			done = append(done, reservationrows.Ref{TenantID: r.TenantID, ReservationID: r.RequestID})
		}
	}
	if err := addOutcomes(ctx, db, views); err != nil || len(done) == 0 {
		return views, err
	}
	held, err := reservationrows.GetAll(ctx, db, done)
	if err != nil {
		return nil, err
	}
	for i := range held {
		ref := Ref{held[i].TenantID, held[i].ReservationID}
		v := views[ref]
		v.Reservation = &held[i]
		views[ref] = v
	}
	return views, nil
}

func collect(ctx context.Context, db Querier, sql string, args ...any) ([]requests.Request, error) {
	rows, err := db.Query(ctx, sql, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, toRequest)
}
