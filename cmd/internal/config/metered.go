package config

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast/holdfast/ratelimit"
)

// Metered is whether and by which budgets adding to a cart is metered. Variants
// may require admission tokens only if it is.
type Metered struct {
	On bool `env:"METERED_COMMANDS_ENABLED, default=false"`
	// TenantBudget and CustomerBudget bound the calls of one tenant, and of one
	// of its customers, that queue a request.
	TenantBudget   Budget `env:"TENANT_BUDGET"`
	CustomerBudget Budget `env:"CUSTOMER_BUDGET"`
	// Retention is how long expired rows are kept.
	Retention time.Duration `env:"METERED_RETENTION, default=168h"`
}

// Budget is a number of calls in a window. With the zero value calls are not
// counted.
type Budget struct {
	Limit  int64
	Window time.Duration
}

// EnvDecode reads a limit and a window: 600/1m.
func (b *Budget) EnvDecode(value string) error {
	if value == "" { // not set
		return nil
	}
	limit, window, both := strings.Cut(value, "/")
	n, badLimit := strconv.ParseUint(limit, 10, 31)
	d, badWindow := time.ParseDuration(window)
	if !both || badLimit != nil || badWindow != nil || n < 1 || n > ratelimit.RateLimitMax ||
		d < time.Second || d > ratelimit.RateWindowMax || d%time.Second != 0 {
		return ruleError(fmt.Sprintf("must be a limit from 1 to %d and a window from 1s to 24h, in whole seconds, such as 600/1m", ratelimit.RateLimitMax))
	}
	*b = Budget{int64(n), d}
	return nil
}

// String returns the budget in the form that EnvDecode reads.
func (b Budget) String() string { return fmt.Sprintf("%d/%s", b.Limit, b.Window) }

func (m *Metered) check() (errs []error) {
	if m.On {
		return nil
	}
	for _, b := range []struct {
		name   string
		budget Budget
	}{{"TENANT_BUDGET", m.TenantBudget}, {"CUSTOMER_BUDGET", m.CustomerBudget}} {
		if b.budget != (Budget{}) {
			errs = append(errs, fmt.Errorf("%s must be left out unless METERED_COMMANDS_ENABLED is true, not %s: without it no calls are counted", b.name, b.budget))
		}
	}
	return errs
}
