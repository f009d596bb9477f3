package boot

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/internal/httpapi"
	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/internal/live"
	"github.com/holdfast/holdfast/internal/ops"
	"github.com/holdfast/holdfast/internal/tenants"
	"github.com/holdfast/holdfast/projections"
)

// liveConns are the connections that read what live connections are sent: those
// of the samples, and one for states, so that slow samples do not delay them.
// They are separate, so that many clients who need a snapshot delay no call.
const liveConns = 3

// publicChannels are beginnings of the channels that any key gives access to. A
// storefront shows them.
var publicChannels = []string{"projection.stocks.availability.", "projection.reservations.counters."}

// newHub makes the hub of an API process over a pool of its own.
func (p *Program) newHub(ctx context.Context) (*live.Hub, *pgxpool.Pool, error) {
	db, err := p.open(ctx, pool{name: "live", conns: liveConns, parameters: shortStatements})
	if err != nil {
		return nil, nil, err
	}
	hub, err := live.New(live.Config{
		Pool: db, Log: p.Log, Public: publicChannels,
		Snapshots: projections.Snapshots, Versions: projections.Versions,
		Sampled: []live.Sampled{
			{Channel: ops.Channel, Scope: tenants.ScopeOps, Sample: p.overview(db)},
			{Channel: "projection.kits.availability", SampleKey: kitAvailability(db)},
		},
		Limits: live.Limits{Connections: p.Config.Live.ConnectionsMax},
	})
	if err != nil {
		db.Close()
		return nil, nil, err
	}
	return hub, db, nil
}

// kitAvailability returns what samples how many whole kits there are: null for an
// unknown kit. That of a kit that depends on no stock is null.
func kitAvailability(db *pgxpool.Pool) func(context.Context, uuid.UUID, string) (json.RawMessage, error) {
	return func(ctx context.Context, tenantID uuid.UUID, key string) (json.RawMessage, error) {
		kit, err := inventory.GetKit(ctx, db, tenantID, key)
		switch _, invalid := errors.AsType[*inventory.InvalidError](err); {
		case invalid, errors.Is(err, inventory.ErrUnknownKit):
			return json.RawMessage("null"), nil
		case err != nil:
			return nil, err
		}
		return json.Marshal(struct {
			KitID     string `json:"kit_id"`
			Available *int64 `json:"available"`
		}{kit.KitID, kit.Available})
	}
}

func (c *apiCell) live() *httpapi.Live {
	return &httpapi.Live{Hub: c.hub, Origins: c.program.Config.Live.Origins}
}
