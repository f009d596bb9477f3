package demo

import (
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

	"github.com/holdfast/holdfast/cmd/internal/replay/storefront"
	"github.com/holdfast/holdfast/internal/verify"
)

// Config says where the sale is held, and how large it is. The zero value of a field is its default, where it has one.
type Config struct {
	// URL is the API's address, Key an API key with the scopes cart and stock, Database the address of the service's
	// database, where the invariants are checked.
	URL, Key, Database string
	// Out is where progress and result are written. A terminal gets a view that moves, anything else plain lines.
	Out io.Writer
	// Stock is how many units there are of the hot variant; default 1,000. Buyers is how many want one; default 10,000.
	Stock, Buyers int
	// For is how long the buyers take to arrive, most of them early; default 12 s. A machine that can't keep the pace takes
	// longer.
	For time.Duration
	// Quiet is how long the normal traffic runs alone before the sale; default 2 s.
	Quiet time.Duration
	// Variants is how many variants the normal traffic is about; default 300. Rate is how many of them are added a second;
	// default 200.
	Variants, Rate int
	// Within bounds all of it; default 75 s.
	Within time.Duration
	// Seed makes the traffic; default 1.
	Seed uint64
}

func (c Config) withDefaults() (Config, error) {
	for _, d := range []struct {
		field *int
		value int
	}{{&c.Stock, 1000}, {&c.Buyers, 10_000}, {&c.Variants, 300}, {&c.Rate, 200}} {
		if *d.field == 0 {
			*d.field = d.value
		}
	}
	for _, d := range []struct {
		field *time.Duration
		value time.Duration
	}{{&c.For, 12 * time.Second}, {&c.Quiet, 2 * time.Second}, {&c.Within, 75 * time.Second}} {
		if *d.field == 0 {
			*d.field = d.value
		}
	}
	if c.Seed == 0 {
		c.Seed = 1
	}
	if c.Stock < 1 || c.Buyers < 2*c.Stock || c.Variants < 1 || c.Rate < 1 || c.For <= 0 || c.Quiet < 0 || c.Within <= 0 {
		return c, fmt.Errorf("demo: want stock (%d) ≥ 1, buyers (%d) ≥ 2 × stock, variants (%d) and rate (%d) ≥ 1, and times above 0",
			c.Stock, c.Buyers, c.Variants, c.Rate)
	}
	return c, nil
}

// sale is a sale under way.
type sale struct {
	Config
	// buyersShop and normalShop have connections of their own, so that the buyers' line here holds nobody else up.
	buyersShop, normalShop *storefront.Shop
	db                     *pgxpool.Pool
	// run is part of every name, so that a database may see many sales; variant is the hot one.
	run, variant string

	hot, before, during tally
	opened              atomic.Bool // the sale has begun
	arrived             atomic.Int64
	actions             actions
	keepersMu           sync.Mutex
	keepers             []string      // carts that will ask for a second unit
	soldOutAfter        atomic.Int64  // nanoseconds from the first buyer to the first who was told sold out; 0 before
	took                time.Duration // from the first buyer to the last outcome
	rates               rates
}

// ErrNotAsPromised says that the sale ended, and not as it should.
var ErrNotAsPromised = errors.New("the sale did not end as promised")

// Run holds the sale and writes what came of it. Errors: ErrNotAsPromised after everything was written; an API that
// refuses a call or does not answer; Within.
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
		return fmt.Errorf("stock up: %w", cause(ctx, err))
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

// cause is why the context ended, where that is the reason of the error.
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
	if s.buyersShop, err = storefront.New(storefront.Config{URLs: []string{c.URL}, Key: c.Key, Connections: buyersMax}); err != nil {
		return nil, err
	}
	if s.normalShop, err = storefront.New(storefront.Config{URLs: []string{c.URL}, Key: c.Key, Connections: normalMax}); err != nil {
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
}

// ample is a normal variant's stock: nobody is turned away there.
const ample = 1_000_000

// stockUp makes the variants.
func (s *sale) stockUp(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(normalMax)
	put := func(variant, lane string, stock int) {
		group.Go(func() error {
			_, err := s.normalShop.SetStock(ctx, variant, storefront.StockPatch{
				Stock: new(int64(stock)), Tracked: new(true), Backorder: new(false), Lane: &lane,
			})
			return err
		})
	}
	put(s.variant, "hot", s.Stock)
	for i := range s.Variants {
		put(fmt.Sprintf("item-%03d", i), "normal", ample)
	}
	return group.Wait()
}

// trade runs the normal traffic, and after a while the sale beside it, with a view of both.
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
		if err := sleep(ctx, s.Quiet); err != nil {
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

func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
