package config

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"time"

	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/internal/signals"
	"github.com/holdfast/holdfast/internal/tenants"
)

// check compares the values with their ranges and with each other.
func (c *Config) check() error {
	errs := c.checkNumbers()
	errs = append(errs, c.checkDurations()...)
	errs = append(errs, c.Metered.check()...)
	if _, err := c.Checkout.Secret(); err != nil {
		errs = append(errs, err)
	}
	errs = append(errs, c.Live.check()...)
	if c.Task.Index >= c.Task.Count {
		errs = append(errs, fmt.Errorf("CLOUD_RUN_TASK_INDEX must be below CLOUD_RUN_TASK_COUNT, which is %d, not %d", c.Task.Count, c.Task.Index))
	}
	if c.Database.URL != "" {
		if _, err := ParseDatabase(c.Database.URL); err != nil {
			errs = append(errs, err)
		}
	}
	if _, err := c.Database.List(); err != nil {
		errs = append(errs, err)
	}
	if _, _, err := net.SplitHostPort(c.MetricsAddress); c.MetricsAddress != "" && err != nil {
		errs = append(errs, fmt.Errorf("METRICS_ADDRESS must be host:port or :port, not %q", c.MetricsAddress))
	}
	if u, err := url.Parse(c.Client.URL); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		errs = append(errs, fmt.Errorf("HOLDFAST_URL must be the address of a Holdfast API, http://host:port, not %q", c.Client.URL))
	}
	if c.Client.Key != "" && !tenants.WellFormed(c.Client.Key) {
		errs = append(errs, errors.New("HOLDFAST_KEY must be an API key, hf_ and 49 letters and digits, copied whole"))
	}
	return errors.Join(errs...)
}

func (c *Config) checkNumbers() []error {
	const rateMax = 1_000_000
	return checkRanges([]limits[int]{
		{"PORT", c.Port, 0, 65535},
		{"DATABASE_CONNECTIONS", c.Database.Connections, 0, 1000},
		{"SWEEP_BATCH", c.Sweep.Batch, 1, 10_000},
		{"QUEUE_DEPTH_MAX", c.Intake.DepthMax, 1, 10_000_000},
		{"QUEUE_TENANT_SHARE", c.Intake.TenantShare, 1, 100},
		{"ADMISSION_QUEUE_MAX", c.Intake.QueueMax, 1, 1_000_000},
		{"CHECKOUT_CALLBACK_CONCURRENCY", c.Checkout.CallbackConcurrency, 1, 10_000},
		{"HOT_BATCH", c.Lanes.HotBatch, 1, 10_000},
		{"HOT_CONCURRENCY", c.Lanes.HotConcurrency, 1, 100},
		{"NORMAL_BATCH", c.Lanes.NormalBatch, 1, 10_000},
		{"NORMAL_CONCURRENCY", c.Lanes.NormalConcurrency, 1, 100},
		{"HOT_PROMOTE_RATE", c.Detect.PromoteRate, 1, rateMax},
		{"HOT_VARIANTS_MAX", c.Detect.VariantsMax, 1, signals.VariantsRecorded},
		{"FLOOD_RATE", c.Detect.FloodRate, 1, rateMax},
		{"LIVE_CONNECTIONS_MAX", c.Live.ConnectionsMax, 1, 1_000_000},
		{"CLOUD_RUN_TASK_INDEX", c.Task.Index, 0, 9999},
		{"CLOUD_RUN_TASK_COUNT", c.Task.Count, 1, 10_000},
	})
}

// limits are the value of a variable and its range.
type limits[T int | time.Duration] struct {
	name            string
	value, min, max T
}

// checkRanges returns an error for each value that is out of its range.
func checkRanges[T int | time.Duration](values []limits[T]) (errs []error) {
	for _, v := range values {
		if v.value < v.min || v.value > v.max {
			errs = append(errs, fmt.Errorf("%s must be between %v and %v, not %v", v.name, v.min, v.max, v.value))
		}
	}
	return errs
}

func (c *Config) checkDurations() []error {
	const year = 366 * 24 * time.Hour
	errs := checkRanges([]limits[time.Duration]{
		{"HOLD_TTL", c.Holds.TTL, time.Second, inventory.MaxTTL},
		{"HOLD_LIFETIME_MAX", c.Holds.LifetimeMax, time.Second, year},
		{"REQUEST_RETENTION", c.Sweep.RequestRetention, time.Minute, 10 * year},
		{"AUDIT_RETENTION", c.Sweep.AuditRetention, 0, 100 * year},
		{"METERED_RETENTION", c.Metered.Retention, time.Minute, 10 * year},
		{"CHECKOUT_TTL", c.Checkout.TTL, time.Second, 24 * time.Hour},
		{"CHECKOUT_CALLBACK_TIMEOUT", c.Checkout.CallbackTimeout, time.Second, time.Minute},
		{"QUEUE_AGE_MAX", c.Lanes.QueueAgeMax, time.Second, year},
		{"ONESHOT_TIME_MAX", c.Lanes.OneShotMax, time.Second, 24 * time.Hour},
		{"STOP_WITHIN", c.StopWithin, time.Second, 10 * time.Minute},
		{"DATABASE_WAIT_MAX", c.Database.WaitMax, 0, time.Hour},
	})
	if c.Holds.TTL > c.Holds.LifetimeMax {
		errs = append(errs, fmt.Errorf("HOLD_TTL, which is %s, must be at most HOLD_LIFETIME_MAX, which is %s", c.Holds.TTL, c.Holds.LifetimeMax))
	}
	for _, least := range []struct {
		name  string
		value time.Duration
	}{{"HOLD_LIFETIME_MAX", c.Holds.LifetimeMax}, {"CHECKOUT_TTL", c.Checkout.TTL}} {
		if c.Sweep.RequestRetention < least.value {
			errs = append(errs, fmt.Errorf("REQUEST_RETENTION, which is %s, must be at least %s, which is %s: the key of a live hold or checkout must not be forgotten",
				c.Sweep.RequestRetention, least.name, least.value))
		}
	}
	if least := c.Sweep.RequestRetention + 24*time.Hour; c.Sweep.AuditRetention > 0 && c.Sweep.AuditRetention < least {
		errs = append(errs, fmt.Errorf("AUDIT_RETENTION must be 0 (for ever) or at least REQUEST_RETENTION and a day, %s, not %s", least, c.Sweep.AuditRetention))
	}
	return errs
}
