package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/holdfast/holdfast/internal/admission"
	"github.com/holdfast/holdfast/internal/queues"
	"github.com/holdfast/holdfast/internal/requestrows"
	"github.com/holdfast/holdfast/metered"
	"github.com/holdfast/holdfast/migrations"
	"github.com/holdfast/holdfast/ratelimit"
)

const (
	meteredName    = "admission, metered"
	plainName      = "admission"
	plainTwiceName = "admission, 2 committers"
	// meteredGroup is the size of the groups. meteredCallers is as many callers
	// as keep two groups full.
	meteredGroup   = 200
	meteredCallers = 4 * meteredGroup
)

// entrance is one configuration of admission.
type entrance struct {
	name       string
	metered    bool
	committers int // 0: the intake's default
}

// metered admits requests as the API does, each under a new key: without
// metered commands, and with them. Then each request has a rate of the tenant,
// a rate of a new customer and an admission token. No worker drains them.
func (b *bench) metered(ctx context.Context) ([]Measure, error) {
	g, err := b.newEnvironment(ctx)
	if err != nil {
		return nil, err
	}
	defer g.close()
	if err := migrations.Up(ctx, g.db, &migrations.Config{Metered: true}); err != nil {
		return nil, err
	}
	c, err := b.compare(ctx,
		b.entrance(g, entrance{meteredName, true, 0}), b.entrance(g, entrance{plainName, false, 0}), b.entrance(g, entrance{plainTwiceName, false, 2}))
	if err != nil {
		return nil, err
	}
	same := c.over("admit_metered_same_committers", meteredName, plainTwiceName)
	same.note("with metered commands the intake commits two groups at one time; so does the other")
	return []Measure{c.over("admit_metered_vs_plain", meteredName, plainName), same}, nil
}

func (b *bench) entrance(g *environment, e entrance) *contender {
	var passes []admission.Credentials
	return &contender{
		name: e.name,
		prepare: func(ctx context.Context) (err error) {
			if err := g.reset(ctx, 1, false); err != nil {
				return err
			}
			passes, err = g.passes(ctx, b.work(e.name, b.long), e.metered)
			return err
		},
		run: func(ctx context.Context, _ time.Duration) (sample, error) {
			s, err := g.enter(ctx, e, passes)
			b.note(e.name, s)
			return s, err
		},
		check: func(ctx context.Context, s sample) error { return g.entered(ctx, s, e.metered) },
	}
}

const guardSQL = `UPDATE inventory_stocks SET admission = 'token'`

// mintGroup is how many tokens are minted at one time.
const mintGroup = 1000

// passes are what n callers present: nothing, or tokens and rates.
func (g *environment) passes(ctx context.Context, n int, all bool) ([]admission.Credentials, error) {
	passes := make([]admission.Credentials, n)
	if !all {
		return passes, nil
	}
	if _, err := g.db.Exec(ctx, guardSQL); err != nil {
		return nil, fmt.Errorf("require tokens: %w", err)
	}
	commands, err := metered.New(g.db, metered.Config{})
	if err != nil {
		return nil, err
	}
	for first := 0; first < n; first += mintGroup {
		group := passes[first:min(first+mintGroup, n)]
		grants := make([]metered.Grant, len(group))
		for i := range group {
			customer := "customer-" + strconv.Itoa(first+i)
			group[i].Subject = customer
			group[i].Rates = []ratelimit.Rate{
				{Scope: "tenant", Amount: 1, Limit: ratelimit.RateLimitMax, Window: time.Second},
				{Scope: "customer:" + customer, Amount: 1, Limit: 30, Window: time.Minute},
			}
			grants[i] = metered.Grant{Purpose: admission.TokenPurpose(hotVariant), Subject: customer, TTL: time.Hour}
		}
		minted, err := commands.Tokens.Mint(ctx, g.tenant, grants...)
		if err != nil {
			return nil, err
		}
		for i := range group {
			group[i].Token = minted[i].Token
		}
	}
	return passes, nil
}

// enter has callers admit one request after the other until every pass was
// used.
func (g *environment) enter(ctx context.Context, e entrance, passes []admission.Credentials) (s sample, err error) {
	in, err := admission.NewIntake(g.admissions, g.inserter, admission.IntakeConfig{
		GroupMax: meteredGroup, DepthMax: plenty, TenantSharePercent: 100, Metered: e.metered, Committers: e.committers,
		Load: queues.NewLoad(g.admissions).Read,
	})
	if err != nil {
		return s, err
	}
	running, stop := context.WithCancel(ctx)
	defer stop()
	var line errgroup.Group
	line.Go(func() error { return in.Run(running) })
	var next atomic.Int64
	s, err = callers(ctx, meteredCallers, time.Hour, func(ctx context.Context, _ int) error {
		i := next.Add(1) - 1
		if i >= int64(len(passes)) {
			return errEnough
		}
		_, _, err := in.SubmitMetered(ctx, requestrows.Submission{
			TenantID: g.tenant, CartID: cartID(), VariantID: hotVariant, Quantity: 1,
			IdempotencyKey: "key-" + strconv.FormatInt(i, 10), ActorID: "hf_shop",
		}, passes[i])
		return err
	})
	stop()
	return s, errors.Join(err, line.Wait())
}

const enteredSQL = `
SELECT (SELECT count(*) FROM reservation_requests WHERE status = 'queued'),
       (SELECT count(*) FROM expiring_tokens WHERE consumed_at IS NOT NULL),
       (SELECT count(*) FROM budget_rates WHERE full_at > 0)`

// entered fails unless the sample's count of requests is queued and, if all is
// true, the same number of tokens is spent and of customers' rates counted, and
// the tenant's rate.
func (g *environment) entered(ctx context.Context, s sample, all bool) error {
	var got, want struct{ queued, spent, counted int64 }
	want.queued = s.count
	if all {
		want.spent, want.counted = s.count, s.count+1
	}
	err := g.db.QueryRow(ctx, enteredSQL).Scan(&got.queued, &got.spent, &got.counted)
	if err == nil && got != want {
		err = fmt.Errorf("the rows do not add up: %+v, want %+v", got, want)
	}
	return err
}
