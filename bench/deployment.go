package main

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/bench/load"
	"github.com/holdfast/holdfast/internal/lanes"
	"github.com/holdfast/holdfast/internal/queues"
	"github.com/holdfast/holdfast/internal/tenants"
)

// deployment is Holdfast as it is deployed: an API and a worker, each a
// separate process, over one database.
type deployment struct {
	api, worker *process
	db          *pgxpool.Pool // ours, for looking
	inserter    *queues.WakeInserter
	tenant      uuid.UUID
	slot        int16 // of the hot variant
	key         string
}

// otherVariants is the number of variants in addition to the hot one.
const otherVariants = 1000

// withDeployment calls do with a new deployment. In a run without warm-up,
// whose figures do not count, all suites share one.
func (b *bench) withDeployment(ctx context.Context, do func(*deployment) ([]Measure, error)) ([]Measure, error) {
	if b.shared != nil {
		return do(b.shared)
	}
	f, err := b.newDeployment(ctx)
	if err != nil {
		return nil, err
	}
	if b.cold {
		b.shared = f // close closes it
	} else {
		defer f.close()
	}
	return do(f)
}

// newDeployment starts the programs with the given settings (NAME=value), and
// the defaults for all others.
func (b *bench) newDeployment(ctx context.Context, settings ...string) (*deployment, error) {
	return b.startDeployment(ctx, func(f *deployment, start startProgram) (err error) {
		if f.api, err = start(settings, "api"); err != nil {
			return err
		}
		f.worker, err = start(settings, "worker")
		return err
	})
}

// startProgram starts one of Holdfast's programs over the deployment's
// database.
type startProgram func(settings []string, name string, args ...string) (*process, error)

// startDeployment makes a database, starts programs over it, and waits until
// its hot variant is in its lane. The variant is pinned, so that no measure
// depends on when the detector finds it.
func (b *bench) startDeployment(ctx context.Context, programs func(*deployment, startProgram) error) (_ *deployment, err error) {
	dir, err := b.programs(ctx)
	if err != nil {
		return nil, err
	}
	f, url, err := b.prepareDeployment(ctx)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			f.close()
		}
	}()
	err = programs(f, func(settings []string, name string, args ...string) (*process, error) {
		return b.program(ctx, "DATABASE_URL="+url, filepath.Join(dir, name), settings, args...)
	})
	if err != nil {
		return nil, err
	}
	f.slot, err = f.arrived(ctx, f.tenant)
	return f, err
}

// prepareDeployment makes the database of a deployment, with a key, stock and
// the pin of the hot variant, and returns its URL.
func (b *bench) prepareDeployment(ctx context.Context) (_ *deployment, url string, err error) {
	if url, err = b.newDatabase(ctx); err != nil {
		return nil, "", err
	}
	f := &deployment{}
	defer func() {
		if err != nil {
			f.close()
		}
	}()
	if f.db, err = openPool(ctx, url, 4, nil); err != nil {
		return nil, "", err
	}
	if f.tenant, f.key, err = newKey(ctx, f.db); err != nil {
		return nil, "", err
	}
	if _, err := f.db.Exec(ctx, fillStocksSQL, f.tenant, otherVariants+1, plenty); err != nil {
		return nil, "", err
	}
	if f.inserter, err = queues.NewWakeInserter(f.db); err != nil {
		return nil, "", err
	}
	return f, url, lanes.Pin(ctx, f.db, f.inserter, f.tenant, hotVariant)
}

// program starts one of Holdfast's programs, with a separate environment. database
// is DATABASE_URL or CELLS with its value.
func (b *bench) program(ctx context.Context, database, path string, settings []string, args ...string) (*process, error) {
	address, err := freeAddress(ctx)
	if err != nil {
		return nil, err
	}
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	return b.spawn(ctx, address, append([]string{database, "PORT=" + port, "LOG_LEVEL=warn"}, settings...), path, args...)
}

func newKey(ctx context.Context, db *pgxpool.Pool) (uuid.UUID, string, error) {
	tenant, err := tenants.Ensure(ctx, db, "bench")
	if err != nil {
		return uuid.Nil, "", err
	}
	key, _, err := tenants.CreateKey(ctx, db, tenant.TenantID, "bench", tenants.AllScopes())
	return tenant.TenantID, key, err
}

// arrived waits until a tenant's hot variant is in its lane, and returns its
// slot.
func (f *deployment) arrived(ctx context.Context, tenant uuid.UUID) (slot int16, err error) {
	err = await(ctx, startWithin, 10*time.Millisecond, func() (missing string, err error) {
		var state string
		if err := f.db.QueryRow(ctx, slotOfSQL, tenant, hotVariant).Scan(&slot, &state); err != nil || state == "hot" {
			return "", err
		}
		return fmt.Sprintf("variant %s is still %s", hotVariant, state), nil
	})
	return slot, err
}

func (f *deployment) close() {
	for _, p := range []*process{f.api, f.worker} {
		if p != nil {
			p.stop()
		}
	}
	if f.db != nil {
		f.db.Close()
	}
}

// wake starts the drain of a stream, as the first admission to an empty stream
// does.
func (f *deployment) wake(ctx context.Context, stream lanes.Stream) error {
	return pgx.BeginFunc(ctx, f.db, func(tx pgx.Tx) error { return f.inserter.InsertTx(ctx, tx, []lanes.Stream{stream}) })
}

func (f *deployment) target() load.Target { return load.Target{Address: f.api.address, Key: f.key} }

// toHot and toNormal are items of new carts.
func toHot() load.Item { return load.Item{CartID: cartID(), VariantID: hotVariant} }

func toNormal() load.Item {
	item := load.Item{CartID: cartID(), VariantID: hotVariant}
	for choose := anyOf(otherVariants + 1); item.VariantID == hotVariant; {
		item.VariantID = choose()
	}
	return item
}

// checkRows waits until no request is undecided. It fails unless every hold has
// its audit row and its unit.
func (f *deployment) checkRows(ctx context.Context, _ sample) error {
	return await(ctx, backlogMax, 20*time.Millisecond, func() (missing string, err error) {
		c, err := countRows(ctx, f.db)
		switch want := (counts{c.done, 0, c.done, c.done, c.done, 0}); {
		case err != nil:
			return "", err
		case c.undone > 0:
			return fmt.Sprintf("%d requests are not done", c.undone), nil
		case c != want:
			return "", fmt.Errorf("the rows do not add up: %+v, want %+v", c, want)
		default:
			return "", nil
		}
	})
}
