package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/holdfast/holdfast/bench/load"
	"github.com/holdfast/holdfast/internal/pgdev"
)

const (
	cellCount = 3
	// cellCores is what each cell's server may use, so that it and not the
	// machine is the limit.
	cellCores = 0.15
	oneCell   = "holdfast over HTTP, one cell"
	manyCells = "holdfast over HTTP, three cells"
)

// cells compares an API and a worker that serve three databases, each on a server
// of its own that may use 0.15 of a core, with an API and a worker that serve one
// such database. Each cell has 64 clients that wait for the outcome.
func (b *bench) cells(ctx context.Context) ([]Measure, error) {
	one, err := b.newCells(ctx, 1)
	if err != nil {
		return nil, err
	}
	defer one.close()
	many, err := b.newCells(ctx, cellCount)
	if err != nil {
		return nil, err
	}
	defer many.close()
	c, err := b.compare(ctx, one.contender(oneCell), many.contender(manyCells))
	if err != nil {
		return nil, err
	}
	rate, cpu := c.over("cells_vs_one", manyCells, oneCell), c.overBy("cells_cpu", manyCells, oneCell, func(s sample) float64 { return s.cpu })
	cpu.note("ours and other in µs")
	if !one.limited {
		rate = skipped("cells_vs_one", errNoQuota.Error())
	}
	return append([]Measure{rate, cpu}, many.cells[0].memory("cells_")...), nil
}

// cells are the databases that one API and one worker serve, each on its server.
type cells struct {
	cells   []*deployment // the first has the programs
	servers []*pgdev.Server
	quotas  []*quota
	admins  []*pgxpool.Pool
	limited bool
}

func (b *bench) newCells(ctx context.Context, n int) (_ *cells, err error) {
	c := &cells{limited: true}
	defer func() {
		if err != nil {
			c.close()
		}
	}()
	var urls []string
	for i := range n {
		url, err := b.addCell(ctx, c)
		if err != nil {
			return nil, err
		}
		urls = append(urls, fmt.Sprintf("cell%d=%s", i+1, url))
	}
	dir, err := b.programs(ctx)
	if err != nil {
		return nil, err
	}
	databases, first := "CELLS="+strings.Join(urls, ","), c.cells[0]
	if first.api, err = b.program(ctx, databases, dir+"/api", nil); err != nil {
		return nil, err
	}
	if first.worker, err = b.program(ctx, databases, dir+"/worker", nil); err != nil {
		return nil, err
	}
	for i, f := range c.cells {
		if f.slot, err = f.arrived(ctx, f.tenant); err != nil {
			return nil, err
		}
		switch err := c.limit(i); {
		case errors.Is(err, errNoQuota):
			c.limited = false
		case err != nil:
			return nil, err
		}
	}
	return c, nil
}

// addCell starts a server with the database of a cell, and returns its URL.
func (b *bench) addCell(ctx context.Context, c *cells) (url string, err error) {
	server, err := pgdev.Start(ctx, pgdev.Options{Settings: map[string]string{"checkpoint_timeout": "1h"}})
	if err != nil {
		return "", err
	}
	c.servers = append(c.servers, server)
	admin, err := pgxpool.New(ctx, server.SocketURL("postgres"))
	if err != nil {
		return "", err
	}
	c.admins = append(c.admins, admin)
	there := *b
	there.postgres, there.admin = server, admin
	f, url, err := there.prepareDeployment(ctx)
	if err == nil {
		c.cells = append(c.cells, f)
	}
	return url, err
}

// limit limits the CPU of a cell's server, which has all its connections by now.
func (c *cells) limit(i int) error {
	q, err := newQuota(fmt.Sprintf("holdfast-bench-%d-%d", os.Getpid(), c.servers[i].PID()), cellCores)
	if err != nil {
		return err
	}
	c.quotas = append(c.quotas, q)
	return q.add(c.servers[i].PID())
}

func (c *cells) close() {
	for _, f := range c.cells {
		f.close()
	}
	for _, admin := range c.admins {
		admin.Close()
	}
	for _, server := range c.servers {
		_ = server.Stop() // its folder is temporary
	}
	for _, q := range c.quotas {
		q.remove()
	}
}

// contender counts the holds of all cells, and the CPU time of their servers.
func (c *cells) contender(name string) *contender {
	return &contender{
		name: name,
		prepare: func(ctx context.Context) error {
			for _, admin := range c.admins {
				if _, err := admin.Exec(ctx, `CHECKPOINT`); err != nil {
					return err
				}
			}
			return nil
		},
		run: func(ctx context.Context, long time.Duration) (s sample, err error) {
			before, err := c.used()
			if err != nil {
				return s, err
			}
			if s, err = c.load(ctx, 2*long); err != nil {
				return s, err
			}
			after, err := c.used()
			s.cpu = float64((after - before).Microseconds()) / float64(max(s.count, 1))
			return s, err
		},
		check: func(ctx context.Context, s sample) error {
			for _, f := range c.cells {
				if err := f.checkRows(ctx, s); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

// load sends the clients of all cells to the one API.
func (c *cells) load(ctx context.Context, long time.Duration) (s sample, err error) {
	results := make([]*load.Result, len(c.cells))
	g, ctx := errgroup.WithContext(ctx)
	for i, f := range c.cells {
		g.Go(func() (err error) {
			target := load.Target{Address: c.cells[0].api.address, Key: f.key, Wait: waitSeconds}
			results[i], err = load.Closed(ctx, target, httpClients, long, toHot)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return s, err
	}
	for _, r := range results {
		if r.Accepted != r.Decided {
			return s, fmt.Errorf("%d of %d calls were not decided in %d s", r.Accepted-r.Decided, r.Accepted, waitSeconds)
		}
		s.count += r.Decided
		s.elapsed = max(s.elapsed, r.Elapsed)
	}
	return s, nil
}

// used is the CPU time of the servers so far, without that of sessions that have
// ended.
func (c *cells) used() (sum time.Duration, err error) {
	for _, server := range c.servers {
		pids, err := childrenOf(server.PID())
		if err != nil {
			return 0, err
		}
		for _, pid := range append(pids, server.PID()) {
			if used, err := cpuOf(pid); err == nil {
				sum += used
			}
		}
	}
	return sum, nil
}
