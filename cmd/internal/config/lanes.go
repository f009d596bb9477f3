package config

import (
	"slices"
	"strings"
	"time"

	"github.com/holdfast/holdfast/internal/lanes"
)

// Lanes is how requests are decided, and which lanes this process serves.
type Lanes struct {
	HotBatch          int           `env:"HOT_BATCH, default=2000"`
	HotConcurrency    int           `env:"HOT_CONCURRENCY, default=4"`
	NormalBatch       int           `env:"NORMAL_BATCH, default=500"`
	NormalConcurrency int           `env:"NORMAL_CONCURRENCY, default=2"`
	QueueAgeMax       time.Duration `env:"QUEUE_AGE_MAX, default=10m"`

	Served LaneNames `env:"WORKER_LANES, default=hot,normal"`
	// OneShot makes a worker drain a bounded batch and exit. OneShotMax bounds
	// that, and every pass of the one-shot program.
	OneShot    bool          `env:"INVENTORY_WORKER_ONESHOT, default=false"`
	OneShotMax time.Duration `env:"ONESHOT_TIME_MAX, default=1m"`
}

// Detect is when variants become hot automatically, and when flooding tenants
// are diverted. Rates are in requests per second. The other thresholds are the
// defaults of the detector.
type Detect struct {
	On          bool `env:"HOT_DETECT, default=true"`
	PromoteRate int  `env:"HOT_PROMOTE_RATE, default=200"`
	VariantsMax int  `env:"HOT_VARIANTS_MAX, default=64"`
	FloodRate   int  `env:"FLOOD_RATE, default=1000"`
}

// LaneNames are the lanes that a worker serves, each one once.
type LaneNames []lanes.Lane

// EnvDecode reads the names, separated by commas.
func (l *LaneNames) EnvDecode(value string) error {
	var names LaneNames
	for name := range strings.SplitSeq(value, ",") {
		name := lanes.Lane(strings.TrimSpace(name))
		if !slices.Contains(lanes.All(), name) {
			return ruleError("must be " + lanes.Either(lanes.All()) + ", or several with commas between")
		}
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	*l = names
	return nil
}
