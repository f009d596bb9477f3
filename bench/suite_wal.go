package main

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/bench/baselines"
)

// wal compares the bytes of WAL of a request from 202 to done with those of the
// naive transaction.
func (b *bench) wal(ctx context.Context) ([]Measure, error) {
	g, err := b.newEnvironment(ctx)
	if err != nil {
		return nil, err
	}
	defer g.close()
	ours := b.drain(g)
	late := b.drain(g)
	late.name = "holdfast drain after a checkpoint"
	prepare := late.prepare
	late.prepare = func(ctx context.Context) error {
		if err := prepare(ctx); err != nil {
			return err
		}
		return b.checkpoint(ctx)
	}
	bytes, err := b.weighed(ctx, g, ours, late)
	if err != nil {
		return nil, err
	}
	m := ratioOf("wal_vs_naive", bytes[ours.name], bytes[naive16Name])
	m.note("bytes per request; over %s; %.0f bytes when a checkpoint falls between 202 and done", naive16Name, median(bytes[late.name]))
	return []Measure{m}, nil
}

// weighed compares the contenders with the naive transaction, and returns the
// bytes of WAL per request, by contender and repetition.
func (b *bench) weighed(ctx context.Context, g *environment, contenders ...*contender) (map[string][]float64, error) {
	naive := baseline{naive16Name, "", 0, 16, 16, baselines.Shop{Variants: 1, Stock: plenty}, transaction}
	theirs, err := naive.contender(ctx, g)
	if err != nil {
		return nil, err
	}
	contenders = append(contenders, theirs)
	for _, s := range contenders {
		b.weigh(s)
	}
	c, err := b.compare(ctx, contenders...)
	bytes := make(map[string][]float64, len(c))
	for name, s := range c {
		bytes[name] = s.each(func(s sample) float64 { return s.logged })
	}
	return bytes, err
}

const (
	positionSQL = `SELECT pg_current_wal_insert_lsn()::text`
	grownSQL    = `SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), $1::pg_lsn)::bigint`
)

// weigh makes the contender record the bytes of WAL per request.
func (b *bench) weigh(s *contender) {
	run := s.run
	s.run = func(ctx context.Context, long time.Duration) (found sample, err error) {
		var from string
		if err := b.admin.QueryRow(ctx, positionSQL).Scan(&from); err != nil {
			return found, err
		}
		if found, err = run(ctx, long); err != nil {
			return found, err
		}
		var grown int64
		if err := b.admin.QueryRow(ctx, grownSQL, pgx.QueryExecModeSimpleProtocol, from).Scan(&grown); err != nil {
			return found, err
		}
		found.logged = float64(grown) / float64(max(found.count, 1))
		return found, nil
	}
}
