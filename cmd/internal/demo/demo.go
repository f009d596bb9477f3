package demo

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/holdfast/holdfast/client"
	"github.com/holdfast/holdfast/internal/sleep"
	"github.com/holdfast/holdfast/verify"
)

// Config is where the sale is held, and how large it is. The zero value of a
// field is its default, where it has one.
type Config struct {
	// URL is the API's address. Key is an API key with the scopes cart and
	// stock. Database is the address of the service's database, on which the
	// invariants are checked.
	URL, Key, Database string
	// Dashboard is the address of the dashboard, empty for none.
	Dashboard string
	// Out receives progress and result. A terminal gets a view that is redrawn,
	// other writers get plain lines.
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
	// Seed determines the traffic; default 1.
	Seed uint64
}

func (c Config) withDefaults() (Config, error) {
	c.Stock = cmp.Or(c.Stock, 1000)
	c.Buyers = cmp.Or(c.Buyers, 10_000)
	c.Variants = cmp.Or(c.Variants, 300)
	c.Rate = cmp.Or(c.Rate, 200)
	c.For = cmp.Or(c.For, 12*time.Second)
	c.Quiet = cmp.Or(c.Quiet, 2*time.Second)
	c.Within = cmp.Or(c.Within, 75*time.Second)
	c.Seed = cmp.Or(c.Seed, 1)
	if c.Stock < 1 || c.Buyers < 2*c.Stock || c.Variants < 1 || c.Rate < 1 || c.For <= 0 || c.Quiet < 0 || c.Within <= 0 {
		return c, fmt.Errorf("demo: want stock (%d) ≥ 1, buyers (%d) ≥ 2 × stock, variants (%d) and rate (%d) ≥ 1, and times above 0",
			c.Stock, c.Buyers, c.Variants, c.Rate)
	}
	return c, nil
}

// sale is a sale in progress.
type sale struct {
	Config
	// buyersShop and normalShop have separate connections, so that waiting
	// buyers do not delay the normal traffic in this process.
	buyersShop, normalShop *client.Client
	db                     *pgxpool.Pool
	// run is part of every name, so that one database can have several sales.
	// variant is the hot variant.
	run, variant string

	hot, before, during tally
	opened              atomic.Bool // the sale has begun
	arrived             atomic.Int64
	actions             actions
	keepersMu           sync.Mutex
	keepers             []string      // carts that will ask for a second unit
	soldOutAfter        atomic.Int64  // nanoseconds from the first buyer to the first that received out_of_stock; 0 before
	took                time.Duration // from the first buyer to the last outcome
	rates               rates
}

// ErrNotAsPromised means that the sale ended, but a promise was not kept.
var ErrNotAsPromised = errors.New("the sale did not end as promised")

// Run holds the sale and writes its result. Errors: ErrNotAsPromised after
// everything was written; an API that refuses a call or does not answer; Within
// is over.
func Run(ctx context.Context, c Config) error {
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
	if err := s.stockUp(ctx); err != nil {
		return fmt.Errorf("set the stocks: %w", cause(ctx, err))
	}
	if err := s.trade(ctx); err != nil {
		return cause(ctx, err)
	}
	if err := s.askForSeconds(ctx); err != nil {
		return cause(ctx, err)
	}
	left, err := s.buyersShop.Stock(ctx, s.variant)
	if err != nil {
		return cause(ctx, err)
	}
	report, err := verify.Run(ctx, s.db)
	if err != nil {
		return cause(ctx, err)
	}
	if !s.conclude(left, report) {
		return ErrNotAsPromised
	}
	return nil
}

// cause returns why the context ended, if that is the reason of the error.
func cause(ctx context.Context, err error) error {
	if ended := context.Cause(ctx); ended != nil {
		return ended
	}
	return err
}

// Connections of the two shops: buyers wait for their outcomes on them.
const (
	buyersMax = 256
	normalMax = 128
)

func open(ctx context.Context, c Config) (*sale, error) {
	s := &sale{Config: c}
	id := make([]byte, 3)
	_, _ = rand.Read(id) // it never fails
	s.run = hex.EncodeToString(id)
	s.variant = "sneaker-" + s.run
	var err error
	if s.buyersShop, err = client.New(client.Config{URLs: []string{c.URL}, Key: c.Key, Connections: buyersMax}); err != nil {
		return nil, err
	}
	if s.normalShop, err = client.New(client.Config{URLs: []string{c.URL}, Key: c.Key, Connections: normalMax}); err != nil {
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
	s.buyersShop.Close()
	s.normalShop.Close()
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
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(normalMax)
	put := func(variant, lane string, stock int) {
		group.Go(func() error {
			_, err := s.normalShop.SetStock(ctx, variant, client.StockPatch{
				Stock: new(int64(stock)), Tracked: new(true), Backorder: new(false), Lane: &lane,
			}, nil)
			return err
		})
	}
	put(s.variant, "hot", s.Stock)
	for i := range s.Variants {
		put(fmt.Sprintf("item-%03d", i), "normal", ample)
	}
	return group.Wait()
}

// trade runs the normal traffic, and after Quiet also the sale, with a view of
// both.
func (s *sale) trade(ctx context.Context) error {
	watched, stopView := context.WithCancel(ctx)
	drawn := make(chan struct{})
	go func() { defer close(drawn); s.watch(watched) }()
	defer func() { stopView(); <-drawn }()

	group, ctx := errgroup.WithContext(ctx)
	closing := make(chan struct{})
	group.Go(func() error { return s.runNormal(ctx, closing) })
	group.Go(func() error {
		defer close(closing)
		if err := sleep.For(ctx, s.Quiet); err != nil {
			return err
		}
		s.opened.Store(true)
		began := time.Now()
		err := s.runBuyers(ctx, began)
		s.took = time.Since(began)
		return err
	})
	return group.Wait()
}
