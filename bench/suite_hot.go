package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"time"

	"github.com/holdfast/holdfast/bench/baselines"
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

// hot holds units of one variant, every way there is.
func (b *bench) hot(ctx context.Context) ([]Measure, error) {
	g, err := b.newGround(ctx)
	if err != nil {
		return nil, err
	}
	defer g.close()
	one := baselines.Shop{Variants: 1, Stock: plenty}
	units := baselines.Shop{Variants: 1, Stock: int64(b.work("", b.long) * 4), Units: true}
	sides := []*side{b.drain(g), b.raw(g)}
	for _, r := range []rival{
		{naive16Name, "a transaction per request, 16 connections", 2050, 16, 16, one, transaction},
		{naive64Name, "a transaction per request, 64 connections", 1500, 64, 64, one, transaction},
		{pipelinedName, "pipelined in one round trip, 2 connections", 4480, 2, 64, one, pipelined},
		{statementName, "one statement (CTE), 16 connections", 3000, 16, 16, one, statement},
		{forUpdateName, "SELECT … FOR UPDATE, 16 connections", 1540, 16, 16, one, selectForUpdate},
		{unitRowsName, "one row per unit, SKIP LOCKED", 7300, 16, 16, units, unitRows},
		{microBatchName, "a micro-batcher in one process, 64 callers", 29_900, 2, 64, one, microBatch},
	} {
		s, err := r.side(ctx, g)
		if err != nil {
			return nil, err
		}
		sides = append(sides, s)
	}
	jobs, err := b.riverJobs(ctx, g)
	if err != nil {
		return nil, err
	}
	sides = append(sides, jobs)
	redis, err := baselines.StartRedis(ctx)
	if err == nil {
		defer redis.Stop()
		sides = append(sides, redisSide(redis, g))
	} else if !errors.Is(err, exec.ErrNotFound) {
		return nil, err
	}
	c, err := b.compare(ctx, sides...)
	if err != nil {
		return nil, err
	}
	b.plotted(c, sides)
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

// riverWorkers is the number of connections at which a transaction per request is fastest.
const riverWorkers = 16

// riverJobs is a job per request; the jobs were inserted before the clock starts, as our requests were.
func (b *bench) riverJobs(ctx context.Context, g *ground) (*side, error) {
	// a connection each for a worker, and some for River itself
	db, err := g.open(ctx, riverWorkers+4)
	if err != nil {
		return nil, err
	}
	var jobs *baselines.RiverJobs
	return &side{
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
				if err := wait(ctx, time.Millisecond); err != nil {
					return s, err
				}
			}
			first, began := jobs.Held(), time.Now()
			if err := wait(ctx, long); err != nil {
				return s, err
			}
			s = sample{count: jobs.Held() - first, elapsed: time.Since(began)}
			b.note(riverName, s)
			return s, jobs.Stop(ctx)
		},
		check: func(ctx context.Context, _ sample) error { return baselines.Check(ctx, g.db, jobs.Held()) },
	}, nil
}

// redisSide has a connection a client.
func redisSide(redis *baselines.Redis, g *ground) *side {
	const clients = 64
	return &side{
		name: redisName, what: "a Redis script, appendfsync always, 64 clients", expected: 37_000,
		prepare: func(ctx context.Context) error {
			return redis.Reset(ctx, baselines.Shop{Variants: 1, Stock: plenty})
		},
		run: func(ctx context.Context, long time.Duration) (sample, error) {
			var dialled []*baselines.RedisClient
			defer func() {
				for _, c := range dialled {
					c.Close()
				}
			}()
			for range clients {
				c, err := redis.Dial(ctx)
				if err != nil {
					return sample{}, fmt.Errorf("connect to redis: %w", err)
				}
				dialled = append(dialled, c)
			}
			return callers(ctx, clients, long, func(ctx context.Context, i int) error {
				return dialled[i].Hold(ctx, baselines.Request{
					TenantID: g.tenant, HoldID: newID(), CartID: cartID(), VariantID: hotVariant, Quantity: 1,
				})
			})
		},
		check: func(ctx context.Context, s sample) error { return redis.Check(ctx, s.count) },
	}
}

// await calls check, with a pause in between, until nothing is missing. It returns check's error, or, once the time
// is over, one that names what is still missing.
func await(ctx context.Context, within, pause time.Duration, check func() (missing string, err error)) error {
	for deadline := time.Now().Add(within); ; {
		missing, err := check()
		if err != nil || missing == "" {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s after %s", missing, within)
		}
		if err := wait(ctx, pause); err != nil {
			return err
		}
	}
}

// wait waits.
func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
