package config

import (
	"fmt"
	"time"

	"github.com/holdfast/holdfast/queues/hot"
)

// Detect is when variants become hot automatically, and when flooding tenants
// are diverted. Rates are in requests per second.
type Detect struct {
	On           bool          `env:"HOT_DETECT, default=true"`
	PromoteRate  int           `env:"HOT_PROMOTE_RATE, default=200"`
	DemoteRate   int           `env:"HOT_DEMOTE_RATE, default=50"`
	PromoteDepth int           `env:"HOT_PROMOTE_DEPTH, default=500"`
	PromoteAfter time.Duration `env:"HOT_PROMOTE_AFTER, default=2s"`
	DemoteAfter  time.Duration `env:"HOT_DEMOTE_AFTER, default=30s"`
	VariantsMax  int           `env:"HOT_VARIANTS_MAX, default=64"`
	TenantMax    int           `env:"HOT_TENANT_MAX, default=16"`
	FloodRate    int           `env:"FLOOD_RATE, default=1000"`
	FloodDepth   int           `env:"FLOOD_DEPTH, default=1000"`
}

func (d *Detect) check() (errs []error) {
	const rateMax = 1_000_000
	errs = checkRanges([]number{
		{"HOT_PROMOTE_RATE", d.PromoteRate, 1, rateMax},
		{"HOT_DEMOTE_RATE", d.DemoteRate, 1, rateMax},
		{"HOT_PROMOTE_DEPTH", d.PromoteDepth, 1, hot.ScanMax},
		{"HOT_VARIANTS_MAX", d.VariantsMax, 1, hot.VariantsRecorded},
		{"HOT_TENANT_MAX", d.TenantMax, 1, 1000},
		{"FLOOD_RATE", d.FloodRate, 1, rateMax},
		{"FLOOD_DEPTH", d.FloodDepth, 1, hot.ScanMax},
	})
	for name, value := range map[string]time.Duration{"HOT_PROMOTE_AFTER": d.PromoteAfter, "HOT_DEMOTE_AFTER": d.DemoteAfter} {
		if value < time.Second || value > time.Hour {
			errs = append(errs, fmt.Errorf("%s must be between 1s and 1h, not %s", name, value))
		}
	}
	if d.DemoteRate > d.PromoteRate {
		errs = append(errs, fmt.Errorf("HOT_DEMOTE_RATE, which is %d, must be at most HOT_PROMOTE_RATE, which is %d", d.DemoteRate, d.PromoteRate))
	}
	return errs
}
