package main

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/bench/baselines"
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
	var opened pools
	defer opened.close()
	naive := rival{naive16Name, "", 0, 16, 16, baselines.Shop{Variants: 1, Stock: plenty}, transaction}
	theirs, err := naive.side(ctx, g, &opened)
	if err != nil {
		return nil, err
	}
	ours, waiting, lone := f.side(), f.waitingSide(waitName, "", httpClients), f.waitingSide(waitLoneName, "", 1)
	bytes := make(map[string][]float64)
	for _, s := range []*side{ours, waiting, lone} {
		f.untilQuiet(s)
		b.weigh(s, bytes)
	}
	b.weigh(theirs, bytes)
	// The front keeps its rows. After a checkpoint between repetitions, it would log each page that it writes to in
	// full.
	if err := b.checkpoint(ctx); err != nil {
		return nil, err
	}
	b.writesOn = true
	defer func() { b.writesOn = false }()
	if _, err := b.compare(ctx, ours, waiting, lone, theirs); err != nil {
		return nil, err
	}
	for name := range bytes {
		bytes[name] = bytes[name][1-b.first():] // without the warm-up
	}
	return []Measure{walPostMeasure(bytes[ours.name], bytes[theirs.name], bytes[waiting.name], bytes[lone.name])}, nil
}

// walPostMeasure is the measure of the repetitions' bytes per request.
func walPostMeasure(ours, theirs, waiting, lone []float64) Measure {
	ratios := make([]float64, len(ours))
	for i := range ours {
		ratios[i] = ratio(ours[i], theirs[i])
	}
	m := newMeasure("wal_post_to_done_vs_naive", "ratio", ratios)
	m.between(median(ours), median(theirs))
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
	for deadline := time.Now().Add(quietMax); ; {
		var left int64
		if err := db.QueryRow(ctx, jobsLeftSQL).Scan(&left); err != nil || left == 0 {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%d jobs are not finished after %s", left, quietMax)
		}
		if err := wait(ctx, 5*time.Millisecond); err != nil {
			return err
		}
	}
}
