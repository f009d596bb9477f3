package main

import (
	"context"
	"time"

	"github.com/holdfast/holdfast/bench/baselines"
	"github.com/holdfast/holdfast/internal/lanes"
)

const (
	spreadName      = "holdfast drain, normal lane"
	spreadStatement = "one statement, 32 connections"
	spreadPipelined = "pipelined, 64 connections"
)

// spread holds units of many variants, none of them hot.
func (b *bench) spread(ctx context.Context) ([]Measure, error) {
	g, err := b.newEnvironment(ctx)
	if err != nil {
		return nil, err
	}
	defer g.close()
	many := baselines.Shop{Variants: b.variants, Stock: plenty}
	contenders := []*contender{b.spreadDrain(g), b.raw(g)}
	for _, r := range []baseline{
		{naive16Name, "", 5400, 16, 16, many, transaction},
		{naive64Name, "", 5400, 64, 64, many, transaction},
		// Without waits for a row, more connections share a commit.
		{spreadStatement, "", 12_700, 32, 64, many, statement},
		{spreadPipelined, "", 12_700, 64, 64, many, pipelined},
	} {
		s, err := r.contender(ctx, g)
		if err != nil {
			return nil, err
		}
		contenders = append(contenders, s)
	}
	c, err := b.compare(ctx, contenders...)
	if err != nil {
		return nil, err
	}
	return []Measure{
		c.over("spread_vs_naive", spreadName, c.best(naive16Name, naive64Name)),
		c.over("spread_vs_handwritten", spreadName, c.best(spreadStatement, spreadPipelined)),
	}, nil
}

// spreadDrain is the normal lane with as many concurrent drains as a worker
// runs.
func (b *bench) spreadDrain(g *environment) *contender {
	return &contender{
		name: spreadName,
		prepare: func(ctx context.Context) error {
			if err := g.reset(ctx, b.variants, false); err != nil {
				return err
			}
			return g.queue(ctx, lanes.Normal, 0, b.work(spreadName, b.long), anyOf(b.variants))
		},
		run: func(ctx context.Context, _ time.Duration) (sample, error) {
			s, err := serveLane(ctx, g.normal, 0, g.normal.Concurrency())
			b.note(spreadName, s)
			return s, err
		},
		check: g.checkRows,
	}
}
