package cells

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/pg"
	"github.com/holdfast/holdfast/internal/sleep"
)

// fencePrefix begins the names of the triggers; the tenant follows.
const fencePrefix = "tenant_fence_"

func fenceName(tenantID uuid.UUID) string {
	return fencePrefix + strings.ReplaceAll(tenantID.String(), "-", "")
}

const (
	// fenceLockWait is how long one attempt to make a trigger waits for the
	// table. Writers of all tenants wait behind it. It is shorter than the 200 ms
	// that an admission waits for a lock.
	fenceLockWait = 50 * time.Millisecond
	// fencePause is the pause between two attempts, and fenceWaitMax bounds
	// them: a vacuum of a large table takes minutes.
	fencePause   = 100 * time.Millisecond
	fenceWaitMax = 10 * time.Minute
)

// alterFence runs a statement that changes the fence on a table, in a transaction
// of its own, once the table is free for it.
func (c Cell) alterFence(ctx context.Context, statement string) error {
	ctx, cancel := context.WithTimeout(ctx, fenceWaitMax)
	defer cancel()
	for {
		err := pgx.BeginFunc(ctx, c.Pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, fmt.Sprintf(`SET LOCAL lock_timeout = %d`, fenceLockWait.Milliseconds())); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, statement)
			return err
		})
		if pg.Code(err) != "55P03" { // lock_not_available
			return err
		}
		if err := sleep.For(ctx, fencePause); err != nil {
			return fmt.Errorf("a table was in use all the time: %w", err)
		}
	}
}

// fence makes the fence of the tenant on all tables. It refuses nothing while the
// tenant is active.
func (c Cell) fence(ctx context.Context, tenantID uuid.UUID, all []table) error {
	create := func(t *table, name, events, when, argument string) error {
		return c.alterFence(ctx, fmt.Sprintf(`CREATE OR REPLACE TRIGGER %s AFTER %s ON %s FOR EACH ROW WHEN (NEW.tenant_id = '%s'%s) EXECUTE FUNCTION tenant_fence('%s')`,
			name, events, t.name, tenantID, when, argument))
	}
	for _, t := range moved(all) {
		// The feed of the projections writes for all tenants at once.
		if t.name == "projection_snapshots" {
			continue
		}
		if err := create(&t, fenceName(tenantID), "INSERT OR UPDATE", "", "all"); err != nil {
			return fmt.Errorf("fence %s: %w", t.name, err)
		}
		if t.intake != "" {
			if err := create(&t, fenceName(tenantID)+"_in", "INSERT", " AND "+t.intake, "intake"); err != nil {
				return fmt.Errorf("fence %s: %w", t.name, err)
			}
		}
	}
	return nil
}

// unfence removes the fence.
func (c Cell) unfence(ctx context.Context, tenantID uuid.UUID, all []table) error {
	for _, t := range all {
		for _, name := range []string{fenceName(tenantID), fenceName(tenantID) + "_in"} {
			exists := false
			err := c.Pool.QueryRow(ctx, `SELECT EXISTS (SELECT 1 FROM pg_trigger WHERE tgrelid = $1::text::regclass AND tgname = $2)`, t.name, name).Scan(&exists)
			if err == nil && exists {
				err = c.alterFence(ctx, fmt.Sprintf(`DROP TRIGGER IF EXISTS %s ON %s`, name, t.name))
			}
			if err != nil {
				return fmt.Errorf("remove the fence of %s: %w", t.name, err)
			}
		}
	}
	return nil
}
