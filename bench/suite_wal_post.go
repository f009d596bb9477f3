package main

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// walPost compares the bytes of WAL of a request from POST to done with those
// of the naive transaction. It counts all that the programs write meanwhile:
// admission, wakes, drain, marks, River's jobs, each with its indexes.
func (b *bench) walPost(ctx context.Context) ([]Measure, error) {
	return b.withDeployment(ctx, func(f *deployment) ([]Measure, error) { return b.walPostOf(ctx, f) })
}

func (b *bench) walPostOf(ctx context.Context, f *deployment) ([]Measure, error) {
	g, err := b.newEnvironment(ctx)
	if err != nil {
		return nil, err
	}
	defer g.close()
	ours, waiting, lone := f.contender(), f.waitingContender(waitName, "", httpClients, toHot), f.waitingContender(waitLoneName, "", 1, toHot)
	for _, s := range []*contender{ours, waiting, lone} {
		f.untilQuiet(s)
	}
	// The deployment keeps its rows. After a checkpoint between repetitions it
	// would log in full each page that it writes to.
	if err := b.checkpoint(ctx); err != nil {
		return nil, err
	}
	b.writesOn = true
	defer func() { b.writesOn = false }()
	bytes, err := b.weighed(ctx, g, ours, waiting, lone)
	if err != nil {
		return nil, err
	}
	return []Measure{walPostMeasure(bytes[ours.name], bytes[naive16Name], bytes[waiting.name], bytes[lone.name])}, nil
}

// walPostMeasure is the measure of the repetitions' bytes per request.
func walPostMeasure(ours, theirs, waiting, lone []float64) Measure {
	m := ratioOf("wal_post_to_done_vs_naive", ours, theirs)
	m.note("bytes per request over HTTP, %d clients; over %s; %.0f bytes when all clients wait for the outcome, %.0f when there is one that waits",
		httpClients, naive16Name, median(waiting), median(lone))
	return m
}

// quietMax is how long the programs may take to finish their jobs once
// everything is decided.
const quietMax = 10 * time.Second

const jobsLeftSQL = `SELECT count(*) FROM river.river_job WHERE state IN ('available', 'running')`

// untilQuiet lets the contender end when River has recorded the end of its
// jobs, so that their bytes are counted.
func (f *deployment) untilQuiet(s *contender) {
	run := s.run
	s.run = func(ctx context.Context, long time.Duration) (sample, error) {
		found, err := run(ctx, long)
		if err != nil {
			return found, err
		}
		return found, awaitJobs(ctx, f.db)
	}
}

// awaitJobs waits until no job is left to work.
func awaitJobs(ctx context.Context, db *pgxpool.Pool) error {
	return await(ctx, quietMax, 5*time.Millisecond, func() (missing string, err error) {
		var left int64
		if err := db.QueryRow(ctx, jobsLeftSQL).Scan(&left); err != nil || left == 0 {
			return "", err
		}
		return fmt.Sprintf("%d jobs are not finished", left), nil
	})
}
