package httpapi

import (
	"context"
	"errors"
	"net/http"
	"strconv"

	"github.com/danielgtaylor/huma/v2"

	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/internal/live"
	"github.com/holdfast/holdfast/projections"
)

// availabilityProjection is the name of the projection with the availability of
// each variant.
const availabilityProjection = "stocks.availability"

// availabilityJSON is the state of that projection.
type availabilityJSON struct {
	VariantID variantID `json:"variant_id"`
	Stock     int64     `json:"stock"`
	Reserved  int64     `json:"reserved" doc:"Units held, due holds included until their expiry is recorded."`
	Available int64     `json:"available" doc:"Stock minus reserved."`
	Tracked   bool      `json:"tracked"`
	Backorder bool      `json:"backorder"`
}

func (s *service) stockEvents() endpoint[stockParams, emptyBody] {
	return endpoint[stockParams, emptyBody]{
		id: "stream-stock", method: http.MethodGet, path: "/v1/stocks/{variant_id}/events", tag: tagStocks, scope: anyScope,
		summary: "Follow the availability of a variant",
		doc: "Server-sent events with the whole state: the present one (snapshot), and then each change (delta). The id is the version of the " +
			"state. After a change that was missed, and after the projection was folded again (rebuild), the state is sent again. A client that " +
			"connects again with the id of the last event gets that state only if it has changed. The response ends " + streamEnds,
		responses:      map[int]any{http.StatusOK: eventsOf{availabilityJSON{}, []any{live.Snapshot, "delta", live.Rebuild}}},
		problems:       []kind{notFound, overLimit, liveLimit},
		requestHeaders: []*huma.Param{lastEventID},
		timeout:        ownBounds,
		handle: func(ctx context.Context, req *request, p *stockParams, _ *emptyBody) (response, error) {
			reading, cancel := context.WithTimeout(ctx, s.bounds.attempt)
			defer cancel()
			tenantID := req.principal.TenantID
			stock, err := inventory.Get(reading, s.pool, tenantID, string(p.VariantID))
			if err != nil {
				return response{}, err
			}
			changes, err := s.live.Hub.Subscribe(tenantID, projections.Channel(availabilityProjection, stock.VariantID))
			if err != nil {
				return response{}, err
			}
			return s.streamResponse(req, func(ctx context.Context, events *eventStream) {
				s.followStock(ctx, events, changes, stock)
			}, changes.Close)
		},
	}
}

// followStock sends the frames of a subscription until the connection fails,
// the hub stops, or ctx ends. A variant without a state, because the projection
// is off or has not read its first change, has that of its stock.
func (s *service) followStock(ctx context.Context, events *eventStream, changes *live.Subscription, stock inventory.Stock) {
	for {
		waiting, cancel := context.WithTimeout(ctx, s.bounds.heartbeat)
		frame, err := changes.Next(waiting)
		cancel()
		switch {
		case err == nil:
			body := []byte(frame.Payload)
			if frame.Version == 0 {
				body = encode(availabilityBody(stock))
				events.last = "" // there may be a change between two states without a version
			}
			err = events.send(strconv.FormatInt(frame.Version, 10), frame.Event, body)
		case ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded):
			err = events.beat()
		}
		if err != nil {
			return
		}
	}
}

func availabilityBody(s inventory.Stock) availabilityJSON {
	return availabilityJSON{
		VariantID: variantID(s.VariantID), Stock: s.Stock, Reserved: s.Reserved, Available: s.Stock - s.Reserved, Tracked: s.Tracked, Backorder: s.Backorder,
	}
}
