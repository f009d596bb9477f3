package boot

import (
	"context"
	"slices"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/internal/lanes"
	"github.com/holdfast/holdfast/internal/queues"
)

func (p *Program) serves(lane lanes.Lane) bool { return slices.Contains(p.Config.Lanes.Served, lane) }

// openDrains makes the pool of the lanes: a connection for each drain that runs
// or waits for a lock at one time, and one for the lane's ticks, isolated retries
// and the query for locked stocks. Even if all
// hot drains wait for hot stocks, the normal lane still has its own.
func (p *Program) openDrains(ctx context.Context) (*pgxpool.Pool, error) {
	c := &p.Config.Lanes
	conns := 0
	if p.serves(lanes.Hot) {
		conns += c.HotConcurrency + queues.LockWaits(c.HotConcurrency) + 1
	}
	if p.serves(lanes.Normal) {
		conns += c.NormalConcurrency + 1 + 1 // one for diverted tenants
	}
	if p.Config.Database.Connections > 0 {
		conns = p.Config.Database.Connections
	}
	return p.openReady(ctx, pool{name: "drains", conns: conns, parameters: shortStatements, hotPath: true})
}
