package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"time"

	"github.com/holdfast/holdfast/bench/baselines"
	"github.com/holdfast/holdfast/internal/sleep"
)

const (
	naive16Name    = "transaction, 16 connections"
	naive64Name    = "transaction, 64 connections"
	pipelinedName  = "pipelined, 2 connections"
	statementName  = "one statement, 16 connections"
	forUpdateName  = "select for update, 16 connections"
	unitRowsName   = "unit rows, 16 connections"
	microBatchName = "micro-batcher, 64 callers"
	redisName      = "redis script, 64 clients"
	riverName      = "river job per request"
)

// hot holds units of one variant with every contender.
func (b *bench) hot(ctx context.Context) ([]Measure, error) {
	g, err := b.newEnvironment(ctx)
	if err != nil {
		return nil, err
	}
	defer g.close()
	one := baselines.Shop{Variants: 1, Stock: plenty}
	units := baselines.Shop{Variants: 1, Stock: int64(b.work("", b.long) * 4), Units: true}
	contenders := []*contender{b.drain(g), b.raw(g)}
	for _, r := range []baseline{
		{naive16Name, "a transaction per request, 16 connections", 2050, 16, 16, one, transaction},
		{naive64Name, "a transaction per request, 64 connections", 1500, 64, 64, one, transaction},
		{pipelinedName, "pipelined in one round trip, 2 connections", 4480, 2, 64, one, pipelined},
		{statementName, "one statement (CTE), 16 connections", 3000, 16, 16, one, statement},
		{forUpdateName, "SELECT … FOR UPDATE, 16 connections", 1540, 16, 16, one, selectForUpdate},
		{unitRowsName, "one row per unit, SKIP LOCKED", 7300, 16, 16, units, unitRows},
		{microBatchName, "a micro-batcher in one process, 64 callers", 29_900, 2, 64, one, microBatch},
	} {
		s, err := r.contender(ctx, g)
		if err != nil {
			return nil, err
		}
		contenders = append(contenders, s)
	}
	jobs, err := b.riverJobs(ctx, g)
	if err != nil {
		return nil, err
	}
	contenders = append(contenders, jobs)
	redis, err := baselines.StartRedis(ctx, redisClients)
	if err == nil {
		defer redis.Stop()
		contenders = append(contenders, redisContender(redis, g))
	} else if !errors.Is(err, exec.ErrNotFound) {
		return nil, err
	}
	c, err := b.compare(ctx, contenders...)
	if err != nil {
		return nil, err
	}
	b.plotted(c, contenders)
	absolute := newMeasure("hot_per_second", "holds/s", c[drainName].rates())
	absolute.Other = 31_000
	absolute.note("other: AliSQL's published figure for one row, on a server")
	vsRedis := skipped("hot_vs_redis", "redis-server is not installed")
	if redis != nil {
		vsRedis = c.over("hot_vs_redis", drainName, redisName)
	}
	return []Measure{
		c.over("hot_vs_naive", drainName, c.best(naive16Name, naive64Name)),
		c.over("hot_vs_handwritten", drainName, c.best(pipelinedName, statementName, forUpdateName)),
		c.over("hot_vs_unit_rows", drainName, unitRowsName),
		c.over("hot_vs_microbatch", drainName, microBatchName),
		vsRedis,
		c.over("hot_vs_river", drainName, riverName),
		c.over("hot_vs_limit", drainName, rawName),
		absolute,
	}, nil
}

// riverWorkers is the number of connections at which a transaction per request
// is fastest.
const riverWorkers = 16

// riverJobs is one job per request. The jobs are inserted before the clock
// starts, as our requests are.
func (b *bench) riverJobs(ctx context.Context, g *environment) (*contender, error) {
	// One connection for each worker, and some for River itself.
	db, err := g.open(ctx, riverWorkers+4)
	if err != nil {
		return nil, err
	}
	var jobs *baselines.RiverJobs
	return &contender{
		name: riverName, what: "a River job per request", expected: 1150,
		prepare: func(ctx context.Context) (err error) {
			if err := g.reset(ctx, 1, false); err != nil {
				return err
			}
			if err := baselines.Prepare(ctx, g.db, baselines.Shop{TenantID: g.tenant, Variants: 1, Stock: plenty}); err != nil {
				return err
			}
			if jobs, err = baselines.NewRiverJobs(db, riverWorkers); err != nil {
				return err
			}
			backlog := make([]baselines.Request, b.work(riverName, b.long)*2)
			for i := range backlog {
				backlog[i] = baselines.Request{TenantID: g.tenant, HoldID: newID(), CartID: cartID(), VariantID: hotVariant, Quantity: 1}
			}
			if err := jobs.Enqueue(ctx, backlog); err != nil {
				return err
			}
			_, err = g.db.Exec(ctx, `ANALYZE river.river_job`)
			return err
		},
		run: func(ctx context.Context, long time.Duration) (s sample, err error) {
			if err := jobs.Start(ctx); err != nil {
				return s, err
			}
			for jobs.Held() == 0 { // starting is not counted
				if err := sleep.For(ctx, time.Millisecond); err != nil {
					return s, err
				}
			}
			first, began := jobs.Held(), time.Now()
			if err := sleep.For(ctx, long); err != nil {
				return s, err
			}
			s = sample{count: jobs.Held() - first, elapsed: time.Since(began)}
			b.note(riverName, s)
			return s, jobs.Stop(ctx)
		},
		check: func(ctx context.Context, _ sample) error { return baselines.Check(ctx, g.db, jobs.Held()) },
	}, nil
}

const redisClients = 64

func redisContender(redis *baselines.Redis, g *environment) *contender {
	return &contender{
		name: redisName, what: "a Redis script, appendfsync always, 64 clients", expected: 37_000,
		prepare: func(ctx context.Context) error {
			return redis.Reset(ctx, baselines.Shop{Variants: 1, Stock: plenty})
		},
		run: func(ctx context.Context, long time.Duration) (sample, error) {
			return callers(ctx, redisClients, long, func(ctx context.Context, _ int) error {
				return redis.Hold(ctx, baselines.Request{
					TenantID: g.tenant, HoldID: newID(), CartID: cartID(), VariantID: hotVariant, Quantity: 1,
				})
			})
		},
		check: func(ctx context.Context, s sample) error { return redis.Check(ctx, s.count) },
	}
}

// await calls check, with a pause in between, until it reports nothing missing.
// It returns check's error, or after the time limit an error that names what is
// missing.
func await(ctx context.Context, within, pause time.Duration, check func() (missing string, err error)) error {
	for deadline := time.Now().Add(within); ; {
		missing, err := check()
		if err != nil || missing == "" {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s after %s", missing, within)
		}
		if err := sleep.For(ctx, pause); err != nil {
			return err
		}
	}
}
