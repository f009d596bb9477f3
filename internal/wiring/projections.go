package wiring

import (
	"context"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/internal/ready"
	"github.com/holdfast/holdfast/internal/sleep"
	"github.com/holdfast/holdfast/projections"
)

// Projections are the ready projections and the feed that folds the audit log
// into them.
type Projections struct {
	Set  *ready.Set
	Feed *projections.Feed
	log  *slog.Logger
}

// NewProjections makes the ready projections and their feed, which does not run
// yet.
func NewProjections(db *pgxpool.Pool, log *slog.Logger) (*Projections, error) {
	config := projections.Config{Log: log}
	set, err := ready.New(db, config)
	if err != nil {
		return nil, err
	}
	feed, err := projections.NewFeed(db, config)
	if err != nil {
		return nil, err
	}
	return &Projections{Set: set, Feed: feed, log: log}, set.Register(feed)
}

// projectionsRetry is the pause after the feed has ended with an error.
const projectionsRetry = 2 * time.Second

// run seeds what the record cannot tell, then folds the record until ctx ends.
// An error ends neither the worker nor the feed: no promise depends on
// projections.
func (p *Projections) run(ctx context.Context) error {
	for ctx.Err() == nil {
		err := p.runOnce(ctx)
		if err != nil && ctx.Err() == nil {
			p.log.WarnContext(ctx, "the feed of the projections ended, and begins again", "error", err)
		}
		_ = sleep.For(ctx, projectionsRetry) // or ctx ends
	}
	return nil
}

func (p *Projections) runOnce(ctx context.Context) error {
	seeded, err := p.Set.SeedMissing(ctx)
	if err != nil {
		return err
	}
	if seeded > 0 {
		p.log.InfoContext(ctx, "availability was read from the stocks", "stocks", seeded)
	}
	return p.Feed.Run(ctx)
}
