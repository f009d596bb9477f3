package config

import "github.com/holdfast/holdfast/queues/hot"

// Detect is when variants become hot automatically, and when flooding tenants
// are diverted. Rates are in requests per second. The other thresholds are the
// defaults of [hot.DetectorConfig].
type Detect struct {
	On          bool `env:"HOT_DETECT, default=true"`
	PromoteRate int  `env:"HOT_PROMOTE_RATE, default=200"`
	VariantsMax int  `env:"HOT_VARIANTS_MAX, default=64"`
	FloodRate   int  `env:"FLOOD_RATE, default=1000"`
}

func (d *Detect) check() []error {
	const rateMax = 1_000_000
	return checkRanges([]number{
		{"HOT_PROMOTE_RATE", d.PromoteRate, 1, rateMax},
		{"HOT_VARIANTS_MAX", d.VariantsMax, 1, hot.VariantsRecorded},
		{"FLOOD_RATE", d.FloodRate, 1, rateMax},
	})
}
