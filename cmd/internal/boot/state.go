package boot

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/internal/lanes"
	"github.com/holdfast/holdfast/internal/queues"
	"github.com/holdfast/holdfast/internal/telemetry"
)

const (
	// stateEvery is how often the state of the database is read for the gauges.
	stateEvery = 15 * time.Second
	// stateTimeout bounds one reading.
	stateTimeout = 5 * time.Second
	// stateValid is how long a reading is shown: two further readings may fail.
	stateValid = 3 * stateEvery
)

// stateGauges are the gauges of the database's contents. In an all-in-one,
// which is API and worker, one part reads them for both.
type stateGauges struct {
	cell string // "" without a name

	mu   sync.Mutex
	runs bool
	last telemetry.State
	at   time.Time
}

// run reads the state each stateEvery until ctx ends, unless another part of
// the program does.
func (g *stateGauges) run(ctx context.Context, db *pgxpool.Pool) error {
	g.mu.Lock()
	first := !g.runs
	g.runs = true
	g.mu.Unlock()
	if !first {
		return nil
	}
	if err := telemetry.Observe(g.latest); err != nil {
		return err
	}
	tick := time.NewTicker(stateEvery)
	defer tick.Stop()
	for {
		if s, err := readState(ctx, db); err == nil { // else the gauges are absent after a while
			g.mu.Lock()
			s.Cell = g.cell
			g.last, g.at = s, time.Now()
			g.mu.Unlock()
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// latest is the last reading, if it is not too old.
func (g *stateGauges) latest() (telemetry.State, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.last, !g.at.IsZero() && time.Since(g.at) < stateValid
}

func readState(ctx context.Context, db *pgxpool.Pool) (s telemetry.State, err error) {
	ctx, cancel := context.WithTimeout(ctx, stateTimeout)
	defer cancel()
	states, err := queues.Lanes(ctx, db)
	if err != nil {
		return s, err
	}
	for _, l := range states {
		s.Lanes = append(s.Lanes, telemetry.LaneState{Lane: string(l.Lane), Depth: l.Depth, OldestAgeSeconds: l.OldestAgeSeconds, Paused: l.Paused})
	}
	if s.HotVariants, err = lanes.CountVariants(ctx, db); err != nil {
		return s, err
	}
	due, err := inventory.OldestDue(ctx, db)
	if err != nil {
		return s, err
	}
	s.SweepLagSeconds = due.Seconds()
	subscriptions, err := audit.Subscriptions(ctx, db)
	for _, sub := range subscriptions {
		s.Subscriptions = append(s.Subscriptions, telemetry.SubscriptionState{Name: sub.Name, Lag: sub.Lag, LagSeconds: sub.LagSeconds})
	}
	return s, err
}
