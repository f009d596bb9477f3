package holdfast

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/holdfast/holdfast/internal/tenants"
)

// Cells are the clients of several databases, by the names of the cells. Each
// database has all of its tenants' rows, and each client is made by [New] and
// started, for those roles that this process has in the cell.
type Cells map[string]*Client

// Tenant returns the tenant of that name, in the cell in which it is active. It
// makes none: the client of a cell does. The tenant may move to another cell
// later, after which its verbs that write return ErrTenantMoving. A program that
// keeps tenants looks one up again then, and before it has kept it for a minute.
//
// Errors: ErrNotFound if no cell has it, ErrTenantMoving while it is active in
// none. An error of a cell's database is returned only if no other cell has the
// tenant.
func (c Cells) Tenant(ctx context.Context, name string) (*Tenant, error) {
	failure := fmt.Errorf("%w: no cell has the tenant %q", ErrNotFound, name)
	for _, cell := range slices.Sorted(maps.Keys(c)) {
		client := c[cell]
		tenant, err := tenants.FindActive(ctx, client.db, name)
		switch {
		case err == nil:
			return &Tenant{client, tenant}, nil
		case !errors.Is(err, tenants.ErrUnknownTenant):
			failure = fmt.Errorf("cell %s: %w", cell, err)
		}
	}
	return nil, failure
}
