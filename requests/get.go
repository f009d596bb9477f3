package requests

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/telemetry"
	"github.com/holdfast/holdfast/reservations"
)

// View is a request with what became of it.
type View struct {
	Request
	// Position counts the earlier undecided requests for the same hot variant, up to PositionMax; nil in the normal lane
	// and once the request is finished.
	Position *int64
	// Reservation is the hold that was made for the request, nil if there is none. Its id is the request's.
	Reservation *reservations.Reservation
}

// PositionMax is the highest position told; it stands for itself and more.
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

// Get returns one request of the tenant with its position and its reservation, or ErrNotFound.
func Get(ctx context.Context, db Querier, tenantID, requestID uuid.UUID) (View, error) {
	r, err := getRow(ctx, db, tenantID, requestID)
	if err != nil {
		return View{}, err
	}
	return Look(ctx, db, r)
}

// Look adds to a request its position and its reservation as they are now.
func Look(ctx context.Context, db Querier, r Request) (View, error) {
	v := View{Request: r}
	switch {
	case r.Status == Done:
		held, err := reservations.Get(ctx, db, r.TenantID, r.RequestID)
		if errors.Is(err, reservations.ErrNotFound) {
			return v, nil // an untracked variant
		}
		v.Reservation = &held
		return v, err
	case !r.Status.Finished() && r.Lane == Hot:
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

func getRow(ctx context.Context, db Querier, tenantID, requestID uuid.UUID) (Request, error) {
	rows, err := db.Query(ctx, getSQL, tenantID, requestID)
	if err != nil {
		return Request{}, fmt.Errorf("get request %s: %w", requestID, err)
	}
	r, err := pgx.CollectExactlyOneRow(rows, toRequest)
	if errors.Is(err, pgx.ErrNoRows) {
		return Request{}, ErrNotFound
	}
	if err != nil {
		return Request{}, fmt.Errorf("get request %s: %w", requestID, err)
	}
	var links telemetry.Links
	links.Add(r.TraceParent)
	links.To(ctx)
	return r, nil
}

func collect(ctx context.Context, db Querier, sql string, args ...any) ([]Request, error) {
	rows, err := db.Query(ctx, sql, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, toRequest)
}
