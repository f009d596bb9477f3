package main

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// walPost compares the bytes that the log grows by for a request from POST to done with those of the naive
// transaction. It counts all that the programs write meanwhile: admission, wakes, drain, marks, River's jobs, each
// with its indexes.
func (b *bench) walPost(ctx context.Context) ([]Measure, error) {
	return b.withFront(ctx, func(f *front) ([]Measure, error) { return b.walPostOf(ctx, f) })
}

func (b *bench) walPostOf(ctx context.Context, f *front) ([]Measure, error) {
	g, err := b.newGround(ctx)
	if err != nil {
		return nil, err
	}
	defer g.close()
	ours, waiting, lone := f.side(), f.waitingSide(waitName, "", httpClients), f.waitingSide(waitLoneName, "", 1)
	for _, s := range []*side{ours, waiting, lone} {
		f.untilQuiet(s)
	}
	// The front keeps its rows. After a checkpoint between repetitions, it would log each page that it writes to in
	// full.
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
	m.note("bytes a request over HTTP, %d clients; over %s; %.0f bytes when all clients wait for the outcome, %.0f when there is one that waits",
		httpClients, naive16Name, median(waiting), median(lone))
	return m
}

// quietMax is how long the programs may take to finish their jobs once everything is decided.
const quietMax = 10 * time.Second

const jobsLeftSQL = `SELECT count(*) FROM river.river_job WHERE state IN ('available', 'running')`

// untilQuiet lets the side end when River has recorded the end of its jobs, so that their bytes are counted.
func (f *front) untilQuiet(s *side) {
	run := s.run
	s.run = func(ctx context.Context, long time.Duration) (sample, error) {
		found, err := run(ctx, long)
		if err != nil {
			return found, err
		}
		return found, awaitJobs(ctx, f.db)
	}
}

// awaitJobs waits until no job is to be worked.
func awaitJobs(ctx context.Context, db *pgxpool.Pool) error {
	return await(ctx, quietMax, 5*time.Millisecond, func() (missing string, err error) {
		var left int64
		if err := db.QueryRow(ctx, jobsLeftSQL).Scan(&left); err != nil || left == 0 {
			return "", err
		}
		return fmt.Sprintf("%d jobs are not finished", left), nil
	})
}
