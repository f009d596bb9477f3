package wiring

import (
	"context"
	"log/slog"

	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/holdfast/holdfast/internal/admission"
	"github.com/holdfast/holdfast/internal/carts"
	"github.com/holdfast/holdfast/internal/queues"
	"github.com/holdfast/holdfast/internal/signals"
)

// AcceptorConfig configures an [Acceptor].
type AcceptorConfig struct {
	Log *slog.Logger
	// Intake bounds the requests. NewAcceptor sets its Load, Decider and Observe.
	Intake admission.IntakeConfig
	// Groups bounds the synchronous verbs.
	Groups carts.Config
	// Direct bounds the decisions for callers that wait; nil: the lanes decide.
	Direct *queues.DrainConfig
	// Signals records the arrivals, by which a detector finds hot variants.
	Signals bool
}

// Acceptor accepts requests in groups, decides those whose callers wait if it
// can, and commits the synchronous verbs in groups.
type Acceptor struct {
	Intake *admission.Intake
	Groups *carts.Groups
	loops  []func(context.Context) error
}

// NewAcceptor makes an acceptor, which does not run yet.
func NewAcceptor(db *pgxpool.Pool, inserter *queues.WakeInserter, c AcceptorConfig) (*Acceptor, error) {
	a := &Acceptor{}
	c.Intake.Load = queues.NewLoad(db).Read
	if c.Direct != nil {
		direct, err := queues.NewDirect(db, c.Log, *c.Direct)
		if err != nil {
			return nil, err
		}
		c.Intake.Decider = direct
		a.loops = append(a.loops, direct.Run)
	}
	if c.Signals {
		arrivals := signals.New(db, c.Log)
		c.Intake.Observe = arrivals.Observe
		a.loops = append(a.loops, arrivals.Run)
	}
	var err error
	if a.Intake, err = admission.NewIntake(db, inserter, c.Intake); err != nil {
		return nil, err
	}
	if a.Groups, err = carts.New(db, c.Groups); err != nil {
		return nil, err
	}
	a.loops = append(a.loops, a.Intake.Run, a.Groups.Run)
	return a, nil
}

// Run accepts until ctx ends, and commits the calls that wait then.
func (a *Acceptor) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, loop := range a.loops {
		group.Go(func() error { return loop(ctx) })
	}
	return group.Wait()
}
