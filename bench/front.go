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
	"github.com/holdfast/holdfast/queues"
	"github.com/holdfast/holdfast/queues/hot"
	"github.com/holdfast/holdfast/requests"
	"github.com/holdfast/holdfast/tenants"
)

// front is Holdfast as it is deployed: an API and a worker, each a process of its own, over a database of theirs.
type front struct {
	api, worker *process
	db          *pgxpool.Pool // ours, for looking
	bell        *queues.Bell
	tenant      uuid.UUID
	slot        int16 // of the hot variant
	key         string
}

// frontVariants are how many variants there are beside the hot one.
const frontVariants = 1000

// withFront calls do with a front of its own; one that is shared if only the machinery is tried.
func (b *bench) withFront(ctx context.Context, do func(*front) ([]Measure, error)) ([]Measure, error) {
	if b.shared != nil {
		return do(b.shared)
	}
	f, err := b.newFront(ctx)
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

// newFront starts the programs with the given settings (NAME=value), and the defaults for all others.
func (b *bench) newFront(ctx context.Context, settings ...string) (*front, error) {
	return b.startFront(ctx, func(f *front, start startProgram) (err error) {
		if f.api, err = start(settings, "api"); err != nil {
			return err
		}
		f.worker, err = start(settings, "worker")
		return err
	})
}

// startProgram starts one of Holdfast's over the database of a front.
type startProgram func(settings []string, name string, args ...string) (*process, error)

// startFront makes a database, starts programs over it, and waits until its hot variant is in its lane. It is
// pinned, so that no measure depends on when it is found out.
func (b *bench) startFront(ctx context.Context, programs func(*front, startProgram) error) (_ *front, err error) {
	dir, err := b.programs(ctx)
	if err != nil {
		return nil, err
	}
	f, url, err := b.prepareFront(ctx)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			f.close()
		}
	}()
	err = programs(f, func(settings []string, name string, args ...string) (*process, error) {
		return b.program(ctx, url, filepath.Join(dir, name), settings, args...)
	})
	if err != nil {
		return nil, err
	}
	f.slot, err = f.arrived(ctx, f.tenant)
	return f, err
}

// prepareFront makes the database of a front, with a key, stock and the pin of the hot variant, and returns its URL.
func (b *bench) prepareFront(ctx context.Context) (_ *front, url string, err error) {
	if url, err = b.newDatabase(ctx); err != nil {
		return nil, "", err
	}
	f := &front{}
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
	if _, err := f.db.Exec(ctx, fillStocksSQL, f.tenant, frontVariants+1, plenty); err != nil {
		return nil, "", err
	}
	if f.bell, err = queues.NewBell(f.db); err != nil {
		return nil, "", err
	}
	return f, url, hot.Pin(ctx, f.db, f.bell, f.tenant, hotVariant)
}

// program starts one of Holdfast's, in an environment of its own.
func (b *bench) program(ctx context.Context, database, path string, settings []string, args ...string) (*process, error) {
	address, err := freeAddress(ctx)
	if err != nil {
		return nil, err
	}
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	return b.spawn(ctx, address, append([]string{"DATABASE_URL=" + database, "PORT=" + port, "LOG_LEVEL=warn"}, settings...), path, args...)
}

func newKey(ctx context.Context, db *pgxpool.Pool) (uuid.UUID, string, error) {
	tenant, err := tenants.Ensure(ctx, db, "bench")
	if err != nil {
		return uuid.Nil, "", err
	}
	key, _, err := tenants.CreateKey(ctx, db, tenant.TenantID, "bench", tenants.AllScopes())
	return tenant.TenantID, key, err
}

// arrived waits until a tenant's hot variant is in its lane, and returns its slot.
func (f *front) arrived(ctx context.Context, tenant uuid.UUID) (slot int16, err error) {
	err = await(ctx, startWithin, 10*time.Millisecond, func() (missing string, err error) {
		var state string
		if err := f.db.QueryRow(ctx, slotOfSQL, tenant, hotVariant).Scan(&slot, &state); err != nil || state == "hot" {
			return "", err
		}
		return fmt.Sprintf("variant %s is still %s", hotVariant, state), nil
	})
	return slot, err
}

func (f *front) close() {
	for _, p := range []*process{f.api, f.worker} {
		if p != nil {
			p.stop()
		}
	}
	if f.db != nil {
		f.db.Close()
	}
}

// wake starts the drain of a stream, as the first admission to an empty stream does.
func (f *front) wake(ctx context.Context, stream requests.Wake) error {
	return pgx.BeginFunc(ctx, f.db, func(tx pgx.Tx) error { return f.bell.RingTx(ctx, tx, []requests.Wake{stream}) })
}

func (f *front) target() load.Target { return load.Target{Address: f.api.address, Key: f.key} }

// toHot and toNormal are calls of a cart each.
func toHot() load.Item { return load.Item{CartID: cartID(), VariantID: hotVariant} }

func toNormal() load.Item {
	item := load.Item{CartID: cartID(), VariantID: hotVariant}
	for choose := anyOf(frontVariants + 1); item.VariantID == hotVariant; {
		item.VariantID = choose()
	}
	return item
}

// sound fails unless, with nothing undecided, every hold has its audit row and its unit.
func (f *front) sound(ctx context.Context, _ sample) error {
	return await(ctx, backlogMax, 20*time.Millisecond, func() (missing string, err error) {
		c, err := countRows(ctx, f.db)
		switch want := (counts{c.done, 0, c.done, c.done, c.done, 0}); {
		case err != nil:
			return "", err
		case c.undone > 0:
			return fmt.Sprintf("%d requests are not done", c.undone), nil
		case c != want:
			return "", fmt.Errorf("the rows don't add up: %+v, want %+v", c, want)
		default:
			return "", nil
		}
	})
}
