package boot

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/cmd/internal/config"
	"github.com/holdfast/holdfast/httpapi"
	"github.com/holdfast/holdfast/inventory"
	"github.com/holdfast/holdfast/metered"
)

// metering is what the API counts calls in and mints tokens with; nil where commands are not metered.
func (a *API) metering() *httpapi.Metering {
	c := &a.program.Config.Metered
	if !c.On {
		return nil
	}
	return &httpapi.Metering{Tokens: metered.NewTokenStore(a.calls), Tenant: rate(c.TenantBudget), Customer: rate(c.CustomerBudget)}
}

func rate(b config.Budget) metered.Rate { return metered.Rate{Limit: b.Limit, Window: b.Window} }

// GuardedError says that an API that asks nobody for a token would serve a variant that requires one.
type GuardedError struct{ inventory.Guarded }

func (e *GuardedError) Error() string {
	return fmt.Sprintf("variant %q of tenant %s requires an admission token, and without METERED_COMMANDS_ENABLED everybody would be let in: "+
		"set METERED_COMMANDS_ENABLED=true, and to do without it first the admission of every such variant to open", e.VariantID, e.TenantID)
}

// requireOpen refuses, where commands are not metered, a database with a variant that requires an admission token. It
// looks once; /readyz looks again.
func (p *Program) requireOpen(ctx context.Context, db *pgxpool.Pool) error {
	if p.Config.Metered.On {
		return nil
	}
	return p.await(ctx, func(ctx context.Context) error {
		guarded, err := inventory.AnyGuarded(ctx, db)
		if err == nil && guarded != nil {
			err = &GuardedError{*guarded}
		}
		return err
	})
}
