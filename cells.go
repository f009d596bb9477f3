package holdfast

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/holdfast/holdfast/internal/tenants"
)

// Cells are the clients of several databases, by the names of the cells. Each
// database has all of its tenants' rows, and each client is made by [New] and
// started, for those roles that this process has in the cell.
type Cells map[string]*Client

// foundTenant is what Cells.Tenant found in a cell, and when the query began.
type foundTenant struct {
	tenants.Tenant
	readAt time.Time
}

// Tenant returns the tenant of that name, in the cell in which it is active. It
// makes none: the client of a cell does. Call it for each use, because the tenant
// may move to another cell: an answer is remembered for one second, and not at all
// once a move is announced, so that the calls made with it are served. A tenant
// that is kept for longer does not follow a move: its verbs that write return
// ErrTenantMoving after it, and those that read find nothing 45 seconds later.
//
// Errors: ErrNotFound if no cell has it, ErrTenantMoving while it is active in
// none. An error of a cell's database is returned only if no other cell has the
// tenant.
func (c Cells) Tenant(ctx context.Context, name string) (*Tenant, error) {
	for _, client := range c {
		known, _ := client.found.Load(name)
		if found, ok := known.(foundTenant); ok && time.Since(found.readAt) < tenants.DefaultCacheFor {
			return &Tenant{client, found.Tenant}, nil
		}
	}
	failure := fmt.Errorf("%w: no cell has the tenant %q", ErrNotFound, name)
	for _, cell := range slices.Sorted(maps.Keys(c)) {
		client, readAt := c[cell], time.Now()
		tenant, leaving, err := tenants.FindActive(ctx, client.db, name)
		switch {
		case err == nil:
			if !leaving {
				client.found.Store(name, foundTenant{tenant, readAt})
			}
			return &Tenant{client, tenant}, nil
		case !errors.Is(err, tenants.ErrUnknownTenant):
			failure = fmt.Errorf("cell %s: %w", cell, err)
		}
	}
	return nil, failure
}
