package httpapi

import (
	"context"
	"errors"
	"net/http"
	"strconv"

	"github.com/danielgtaylor/huma/v2"
	"github.com/google/uuid"

	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/internal/ops"
	"github.com/holdfast/holdfast/internal/tenants"
	"github.com/holdfast/holdfast/internal/unitrows"
	"github.com/holdfast/holdfast/reservations"
)

type blockParams struct {
	Block blockID `path:"block"`
}

func (s *service) importUnits() endpoint[blockParams, emptyBody] {
	lines := &huma.MediaType{Schema: &huma.Schema{Type: huma.TypeString}}
	return endpoint[blockParams, emptyBody]{
		id: "import-units", method: http.MethodPut, path: "/v1/units/{block}/import", tag: tagUnits, scope: tenants.ScopeStock,
		summary: "Add units to a block",
		doc: "Makes the block if there is none. One unit per line, up to " + strconv.Itoa(importMax>>20) + " MiB. CSV has a header with unit_id and, if wanted, " +
			"position; NDJSON has one object per line with the same fields. A unit without a position follows the last one; units with " +
			"consecutive positions are neighbours. Lines take effect in their order, in transactions of 500. A unit that the block has already " +
			"is unchanged, so the same import can be sent again. An invalid line is reported, and the others take effect. The problem " +
			"of an import that ends early has, in units_report, what it did.",
		upload:    map[string]*huma.MediaType{typeCSV: lines, typeNDJSON: lines},
		responses: map[int]any{http.StatusOK: inventory.UnitImportReport{}},
		problems:  []kind{notABlock},
		timeout:   importTimeout,
		handle: func(ctx context.Context, req *request, p *blockParams, _ *emptyBody) (response, error) {
			if err := req.checkMediaType(typeCSV, typeNDJSON); err != nil {
				return response{}, err
			}
			body, err := req.uploadedBody()
			if err != nil {
				return response{}, err
			}
			report, err := s.tenant(req).ImportUnits(ctx, string(p.Block), req.format(), body, req.opts())
			if err != nil && report.RejectedLines != nil { // it has begun
				err = &importError{units: &report, cause: err}
			}
			return req.respond(report, err)
		},
	}
}

type listUnitsParams struct {
	Block  blockID   `path:"block"`
	Limit  unitLimit `query:"limit"`
	Cursor string    `query:"cursor" doc:"next_cursor of the previous page."`
}

// unitLimit is how many units a page holds at most; 0 if left out.
type unitLimit int

// Schema describes the limit, for huma.
func (unitLimit) Schema(r huma.Registry) *huma.Schema { return stockLimit(0).Schema(r) }

// unitJSON is a unit in the list of its block.
type unitJSON struct {
	UnitID   unitID          `json:"unit_id"`
	Position int64           `json:"position" doc:"The place of the unit within its block. Units with consecutive positions are neighbours."`
	Status   unitrows.Status `json:"status" enum:"active,pending_inactive,inactive" doc:"pending_inactive is held for a cart, inactive is committed. A unit whose hold is due is pending_inactive until the expiry is recorded, and can be held."`
}

func unitBody(u *unitrows.Unit) unitJSON {
	return unitJSON{UnitID: unitID(u.UnitID), Position: u.Position, Status: u.Status}
}

type unitPageJSON struct {
	Block      blockID    `json:"block"`
	Active     int64      `json:"active" doc:"Units of the whole block that are not held."`
	Pending    int64      `json:"pending" doc:"Units of the whole block that are held."`
	Inactive   int64      `json:"inactive" doc:"Units of the whole block that were committed."`
	Items      []unitJSON `json:"items"`
	NextCursor *string    `json:"next_cursor" doc:"The cursor of the next page; null on the last page."`
}

func (s *service) listUnits() endpoint[listUnitsParams, emptyBody] {
	return endpoint[listUnitsParams, emptyBody]{
		id: "list-units", method: http.MethodGet, path: "/v1/units/{block}", tag: tagUnits, scope: tenants.ScopeStock,
		summary:   "List the units of a block",
		doc:       "In the order of their ids, with the counts of the whole block. A unit that exists during the whole listing is on exactly one page.",
		responses: map[int]any{http.StatusOK: unitPageJSON{}},
		problems:  []kind{notFound, notABlock},
		handle: func(ctx context.Context, req *request, p *listUnitsParams, _ *emptyBody) (response, error) {
			page, err := s.tenant(req).Block(ctx, string(p.Block), int(p.Limit), p.Cursor)
			if err != nil {
				return response{}, err
			}
			body := unitPageJSON{
				Block: p.Block, Active: page.Active, Pending: page.Pending, Inactive: page.Inactive, Items: make([]unitJSON, len(page.Items)),
			}
			for i := range page.Items {
				body.Items[i] = unitBody(&page.Items[i])
			}
			if page.NextCursor != "" {
				body.NextCursor = &page.NextCursor
			}
			return jsonResponse(http.StatusOK, body), nil
		},
	}
}

type unitParams struct {
	Block  blockID `path:"block"`
	UnitID unitID  `path:"unit_id"`
}

// unitDetailJSON is one unit with its history.
type unitDetailJSON struct {
	Block       blockID          `json:"block"`
	UnitID      unitID           `json:"unit_id"`
	Position    int64            `json:"position"`
	Status      unitrows.Status  `json:"status" enum:"active,pending_inactive,inactive"`
	Reservation *reservationJSON `json:"reservation" doc:"The reservation that holds the unit, or that committed it; null for an active unit, and if the reservation was purged."`
	History     []recordJSON     `json:"history" doc:"The changes of all reservations that had the unit: the newest 1000, oldest first. before and after do not list the units."`
}

// TransformSchema allows null for the reservation. Huma has no tag for that.
func (unitDetailJSON) TransformSchema(r huma.Registry, s *huma.Schema) *huma.Schema {
	return requestJSON{}.TransformSchema(r, s)
}

func (s *service) getUnit() endpoint[unitParams, emptyBody] {
	return endpoint[unitParams, emptyBody]{
		id: "get-unit", method: http.MethodGet, path: "/v1/units/{block}/{unit_id}", tag: tagUnits, scope: tenants.ScopeStock,
		summary:   "Read a unit and its history",
		responses: map[int]any{http.StatusOK: unitDetailJSON{}},
		problems:  []kind{notFound, notABlock},
		handle: func(ctx context.Context, req *request, p *unitParams, _ *emptyBody) (response, error) {
			tenant := req.principal.TenantID
			unit, err := inventory.GetUnit(ctx, s.pool, tenant, string(p.Block), string(p.UnitID))
			if err != nil {
				return response{}, err
			}
			body := unitDetailJSON{Block: p.Block, UnitID: p.UnitID, Position: unit.Position, Status: unit.Status}
			if unit.ReservationID != uuid.Nil {
				owner, err := reservations.Get(ctx, s.pool, tenant, unit.ReservationID)
				switch {
				case err == nil:
					held := reservationBody(owner)
					body.Reservation = &held
				case !errors.Is(err, reservations.ErrNotFound):
					return response{}, err
				}
			}
			records, err := ops.UnitHistory(ctx, s.pool, tenant, string(p.Block), string(p.UnitID))
			if err != nil {
				return response{}, err
			}
			body.History = make([]recordJSON, len(records))
			for i, r := range records {
				body.History[i] = recordBody(r)
				body.History[i].ReservationID = &r.TargetID
			}
			return jsonResponse(http.StatusOK, body), nil
		},
	}
}
