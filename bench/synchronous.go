package main

import (
	"context"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/bench/baselines"
	"github.com/holdfast/holdfast/bench/load"
)

// synchronous is a synchronous service in a separate process.
type synchronous struct {
	process *process
	db      *pgxpool.Pool
	tenant  uuid.UUID
	key     string
	held    int64 // so far
}

// newSynchronous starts the service with one form, over one variant.
func (b *bench) newSynchronous(ctx context.Context, form string) (*synchronous, error) {
	return b.startSynchronous(ctx, form, 1)
}

// startSynchronous starts the service over that many variants, with plenty of
// stock each. flags are those of serve.
func (b *bench) startSynchronous(ctx context.Context, form string, variants int, flags ...string) (_ *synchronous, err error) {
	url, err := b.newDatabase(ctx)
	if err != nil {
		return nil, err
	}
	s := &synchronous{}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	if s.db, err = openPool(ctx, url, 2, nil); err != nil {
		return nil, err
	}
	if s.tenant, s.key, err = newKey(ctx, s.db); err != nil {
		return nil, err
	}
	if err := baselines.Prepare(ctx, s.db, baselines.Shop{TenantID: s.tenant, Variants: variants, Stock: plenty}); err != nil {
		return nil, err
	}
	address, err := freeAddress(ctx)
	if err != nil {
		return nil, err
	}
	args := append([]string{serveCommand, "-form", form, "-database", url, "-address", address}, flags...)
	s.process, err = b.spawn(ctx, address, nil, b.self, args...)
	return s, err
}

func (s *synchronous) close() {
	if s.process != nil {
		s.process.stop()
	}
	if s.db != nil {
		s.db.Close()
	}
}

func (s *synchronous) target() load.Target {
	return load.Target{Address: s.process.address, Key: s.key}
}
