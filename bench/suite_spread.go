package main

import (
	"context"
	"time"

	"github.com/holdfast/holdfast/bench/baselines"
	"github.com/holdfast/holdfast/requests"
)

const (
	spreadName      = "holdfast drain, normal lane"
	spreadStatement = "one statement, 32 connections"
	spreadPipelined = "pipelined, 64 connections"
)

// spread holds units of many variants, none of them hot.
func (b *bench) spread(ctx context.Context) ([]Measure, error) {
	g, err := b.newGround(ctx)
	if err != nil {
		return nil, err
	}
	defer g.close()
	many := baselines.Shop{Variants: b.variants, Stock: plenty}
	sides := []*side{b.spreadDrain(g), b.raw(g)}
	for _, r := range []rival{
		{naive16Name, "", 5400, 16, 16, many, transaction},
		{naive64Name, "", 5400, 64, 64, many, transaction},
		// where nobody waits for a row, more of them share a commit
		{spreadStatement, "", 12_700, 32, 64, many, statement},
		{spreadPipelined, "", 12_700, 64, 64, many, pipelined},
	} {
		s, err := r.side(ctx, g)
		if err != nil {
			return nil, err
		}
		sides = append(sides, s)
	}
	c, err := b.compare(ctx, sides...)
	if err != nil {
		return nil, err
	}
	return []Measure{
		c.over("spread_vs_naive", spreadName, c.best(naive16Name, naive64Name)),
		c.over("spread_vs_handwritten", spreadName, c.best(spreadStatement, spreadPipelined)),
	}, nil
}

// spreadDrain is the normal lane with as many drains as a worker runs side by side.
func (b *bench) spreadDrain(g *ground) *side {
	return &side{
		name: spreadName,
		prepare: func(ctx context.Context) error {
			if err := g.reset(ctx, b.variants, false); err != nil {
				return err
			}
			return g.queue(ctx, requests.Normal, 0, b.work(spreadName, b.long), anyOf(b.variants))
		},
		run: func(ctx context.Context, _ time.Duration) (sample, error) {
			s, err := serveLane(ctx, g.normal, 0, g.normal.Concurrency())
			b.note(spreadName, s)
			return s, err
		},
		check: g.sound,
	}
}
