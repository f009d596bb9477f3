package main

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/bench/baselines"
)

// wal compares the bytes that the log grows by for a request from 202 to done with those of the naive transaction.
func (b *bench) wal(ctx context.Context) ([]Measure, error) {
	g, err := b.newGround(ctx)
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
	m.note("bytes a request; over %s; %.0f bytes when a checkpoint falls between 202 and done", naive16Name, median(bytes[late.name]))
	return []Measure{m}, nil
}

// weighed compares the sides with the naive transaction, and returns how many bytes the log grew by for each of their
// requests, by side and repetition.
func (b *bench) weighed(ctx context.Context, g *ground, sides ...*side) (map[string][]float64, error) {
	naive := rival{naive16Name, "", 0, 16, 16, baselines.Shop{Variants: 1, Stock: plenty}, transaction}
	theirs, err := naive.side(ctx, g)
	if err != nil {
		return nil, err
	}
	sides = append(sides, theirs)
	for _, s := range sides {
		b.weigh(s)
	}
	c, err := b.compare(ctx, sides...)
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

// weigh lets the side note how many bytes the log grows by for each of its requests.
func (b *bench) weigh(s *side) {
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
