package boot

import (
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/queues"
	"github.com/holdfast/holdfast/queues/hot"
	"github.com/holdfast/holdfast/requests"
)

// noters are the connections with which an API process notes what arrives.
const noters = 1

// detector makes the one that moves variants between the lanes, nil if this process runs none: HOT_DETECT is off, or the
// process serves no hot lane. Of all processes that run one, one at a time decides.
func (p *Program) detector(db *pgxpool.Pool, bell *queues.Bell) (*hot.Detector, error) {
	c := p.Config.Detect
	if !c.On || !p.serves(requests.Hot) {
		return nil, nil
	}
	return hot.NewDetector(db, bell, p.Log, hot.DetectorConfig{
		PromoteRate: float64(c.PromoteRate), DemoteRate: float64(c.DemoteRate), PromoteDepth: c.PromoteDepth,
		PromoteAfter: c.PromoteAfter, DemoteAfter: c.DemoteAfter,
		VariantsMax: c.VariantsMax, TenantMax: c.TenantMax,
		FloodRate: float64(c.FloodRate), FloodDepth: c.FloodDepth,
	})
}
