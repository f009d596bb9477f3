package traffic

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/holdfast/holdfast/client"
	"github.com/holdfast/holdfast/internal/sleep"
	"github.com/holdfast/holdfast/verify"
)

// DemoConfig is where the sale is held, and how large it is. The zero value of a
// field is its default, where it has one.
type DemoConfig struct {
	// URL is the API's address. Key is an API key with the scopes cart and
	// stock. Database is the address of the service's database, on which the
	// invariants are checked.
	URL, Key, Database string
	// Dashboard is the address of the dashboard, empty for none.
	Dashboard string
	// Out receives progress and result.
	Out io.Writer
	// Stock is the number of units of the hot variant; default 1,000. Buyers is
	// how many buyers want one; default 10,000.
	Stock, Buyers int
	// For is how long the buyers take to arrive, most of them early; default 12
	// s. On a slow machine they take longer.
	For time.Duration
	// Quiet is how long the normal traffic runs alone before the sale; default
	// 2 s.
	Quiet time.Duration
	// Variants is the number of variants in the normal traffic; default 300.
	// Rate is the number of adds of these variants per second; default 200.
	Variants, Rate int
	// Within bounds the whole run; default 75 s.
	Within time.Duration
}

func (c DemoConfig) withDefaults() (DemoConfig, error) {
	c.Stock = cmp.Or(c.Stock, 1000)
	c.Buyers = cmp.Or(c.Buyers, 10_000)
	c.Variants = cmp.Or(c.Variants, 300)
	c.Rate = cmp.Or(c.Rate, 200)
	c.For = cmp.Or(c.For, 12*time.Second)
	c.Quiet = cmp.Or(c.Quiet, 2*time.Second)
	c.Within = cmp.Or(c.Within, 75*time.Second)
	if c.Stock < 1 || c.Buyers < 2*c.Stock || c.Variants < 1 || c.Rate < 1 || c.For <= 0 || c.Quiet < 0 || c.Within <= 0 {
		return c, fmt.Errorf("demo: want stock (%d) ≥ 1, buyers (%d) ≥ 2 × stock, variants (%d) and rate (%d) ≥ 1, and times above 0",
			c.Stock, c.Buyers, c.Variants, c.Rate)
	}
	return c, nil
}

// sale is a flash sale in progress.
type sale struct {
	DemoConfig
	// The crowds have separate connections, so that waiting buyers do not delay
	// the normal traffic in this process.
	buyers, normal *crowd
	db             *pgxpool.Pool
	view           *view
	// run is part of every name, so that one database can have several sales.
	// variant is the hot variant.
	run, variant string

	hot, before, during *tally // before and during the sale: normal traffic
	opened              time.Time
	took                time.Duration // from the first buyer to the last outcome
	actions
}

// ErrNotAsPromised means that the sale ended, but a promise was not kept.
var ErrNotAsPromised = errors.New("the sale did not end as promised")

// Demo holds a flash sale and writes its result. Errors: ErrNotAsPromised after
// everything was written; an API that refuses a call or does not answer; Within
// is over.
func Demo(ctx context.Context, c DemoConfig) error {
	c, err := c.withDefaults()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, c.Within, fmt.Errorf("the sale did not end within %s", c.Within))
	defer cancel()
	s, err := open(ctx, c)
	if err != nil {
		return err
	}
	defer s.close()
	s.introduce()
	left, report, err := s.hold(ctx)
	if err != nil {
		return cause(ctx, err)
	}
	if !s.conclude(left, report) {
		return ErrNotAsPromised
	}
	return nil
}

// hold holds the sale, and returns the hot variant's stock after it and the
// invariants checked in SQL.
func (s *sale) hold(ctx context.Context) (left client.Stock, report verify.Report, err error) {
	if err := s.stockUp(ctx); err != nil {
		return left, report, fmt.Errorf("set the stocks: %w", err)
	}
	if err := s.trade(ctx); err != nil {
		return left, report, err
	}
	if err := s.askForSeconds(ctx); err != nil {
		return left, report, err
	}
	if left, err = s.buyers.api.Stock(ctx, s.variant); err != nil {
		return left, report, err
	}
	report, err = verify.Run(ctx, s.db, verify.Config{})
	return left, report, err
}

// Connections of the two crowds: buyers wait for their outcomes on them.
const (
	buyersMax = 256
	normalMax = 128
)

// randomName returns digits that no other run has.
func randomName() string {
	id := make([]byte, 4)
	_, _ = rand.Read(id) // it never fails
	return hex.EncodeToString(id)
}

func open(ctx context.Context, c DemoConfig) (*sale, error) {
	s := &sale{DemoConfig: c, run: randomName(), hot: newTally(), before: newTally(), during: newTally()}
	s.variant = "sneaker-" + s.run
	s.view = &view{out: c.Out, kinds: []kind{{"hot", []*tally{s.hot}}, {"normal", []*tally{s.before, s.during}}}}
	var err error
	if s.buyers, err = newCrowd(client.Config{URLs: []string{c.URL}, Key: c.Key, Connections: buyersMax}, c.Within, s.hot); err != nil {
		return nil, err
	}
	if s.normal, err = newCrowd(client.Config{URLs: []string{c.URL}, Key: c.Key, Connections: normalMax}, c.Within, s.before); err != nil {
		return nil, err
	}
	config, err := pgxpool.ParseConfig(c.Database)
	if err != nil {
		return nil, fmt.Errorf("read the database's address: %w", err)
	}
	config.MaxConns = 1
	if s.db, err = pgxpool.NewWithConfig(ctx, config); err != nil {
		return nil, fmt.Errorf("open the database: %w", err)
	}
	return s, nil
}

func (s *sale) close() {
	s.buyers.api.Close()
	s.normal.api.Close()
	s.db.Close()
}

func (s *sale) introduce() {
	fmt.Fprintf(s.Out, `A flash sale, through the HTTP API at %s

  %s buyers want one each of %s units of %s, most of them at once: the hot lane.
  %d other variants go on selling, %d a second: the normal lane.
  Some buyers click twice, check out, change their minds, or ask for more.
  The service, Postgres and all buyers share the %d cores of this machine.

`, s.URL, grouped(s.Buyers), grouped(s.Stock), s.variant, s.Variants, s.Rate, runtime.NumCPU())
	if s.Dashboard != "" {
		fmt.Fprintf(s.Out, "  Watch it in a browser: %s\n\n", s.Dashboard)
	}
}

// ample is a normal variant's stock, which never sells out.
const ample = 1_000_000

// stockUp makes the variants.
func (s *sale) stockUp(ctx context.Context) error {
	put := func(lane string, stock int) func(context.Context, string) (client.Stock, error) {
		patch := client.StockPatch{Stock: new(int64(stock)), Tracked: new(true), Backorder: new(false), Lane: &lane}
		return func(ctx context.Context, variant string) (client.Stock, error) {
			return s.normal.api.SetStock(ctx, variant, patch, nil)
		}
	}
	items := make([]string, s.Variants)
	for i := range items {
		items[i] = itemName(i)
	}
	if _, err := s.normal.stocks(ctx, items, put("normal", ample)); err != nil {
		return err
	}
	_, err := put("hot", s.Stock)(ctx, s.variant)
	return err
}

// trade runs the normal traffic, and after Quiet also the sale, with a view of
// both.
func (s *sale) trade(ctx context.Context) error {
	defer s.view.start()()
	group, ctx := errgroup.WithContext(ctx)
	var over atomic.Bool
	group.Go(func() error { return s.normal.serve(ctx, s.carts(&over)) })
	group.Go(func() error {
		defer over.Store(true)
		if err := sleep.For(ctx, s.Quiet); err != nil {
			return err
		}
		s.normal.tally.Store(s.during)
		s.opened = time.Now()
		err := s.buyers.serve(ctx, s.rush)
		s.took = time.Since(s.opened)
		return err
	})
	return group.Wait()
}
