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
	var opened pools
	defer opened.close()
	naive := rival{naive16Name, "", 0, 16, 16, baselines.Shop{Variants: 1, Stock: plenty}, transaction}
	theirs, err := naive.side(ctx, g, &opened)
	if err != nil {
		return nil, err
	}
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
	bytes := make(map[string][]float64)
	for _, s := range []*side{ours, late, theirs} {
		b.weigh(s, bytes)
	}
	if _, err := b.compare(ctx, ours, late, theirs); err != nil {
		return nil, err
	}
	ratios := make([]float64, b.reps)
	for name := range bytes {
		bytes[name] = bytes[name][1-b.first():] // without the warm-up
	}
	for i := range ratios {
		ratios[i] = ratio(bytes[ours.name][i], bytes[theirs.name][i])
	}
	m := newMeasure("wal_vs_naive", "ratio", ratios)
	m.between(median(bytes[ours.name]), median(bytes[theirs.name]))
	m.note("bytes a request; over %s; %.0f bytes when a checkpoint falls between 202 and done", theirs.name, median(bytes[late.name]))
	return []Measure{m}, nil
}

const (
	positionSQL = `SELECT pg_current_wal_insert_lsn()::text`
	grownSQL    = `SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), $1::pg_lsn)::bigint`
)

// weigh lets the side note how many bytes the log grows by for each of its requests.
func (b *bench) weigh(s *side, bytes map[string][]float64) {
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
		bytes[s.name] = append(bytes[s.name], float64(grown)/float64(max(found.count, 1)))
		return found, nil
	}
}
