package wiring

import (
	"context"
	"errors"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/holdfast/holdfast/internal/checkouts"
	"github.com/holdfast/holdfast/internal/queues"
	"github.com/holdfast/holdfast/internal/telemetry"
)

// DrainReport is what a bounded drain did.
type DrainReport struct {
	Claimed  int `json:"claimed"`
	Held     int `json:"held"`
	Rejected int `json:"rejected"`
	// Retried is how many attempts of isolated retry there were.
	Retried int `json:"retried"`
	// More means that the time was up before the lanes were empty.
	More    bool    `json:"more"`
	Passes  int     `json:"passes"`
	Seconds float64 `json:"seconds"`
}

func (d *DrainReport) add(r queues.Report) {
	d.Claimed += r.Claimed
	d.Held += r.Held
	d.Rejected += r.Rejected
	d.Retried += r.Retried
}

// passGrace is how long the decisions in progress may take to end when the time
// of a pass is up.
const passGrace = 5 * time.Second

// repeat runs the step for each lane in turn until none has more to do, or
// until the time is over. When ctx ends, what the steps have begun may end.
func repeat(ctx context.Context, lanes []*queues.Lane, within time.Duration, step func(context.Context, *queues.Lane) (queues.Report, error)) (more bool, err error) {
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, within+passGrace)
	defer cancel()
	for more = true; more && ctx.Err() == nil && time.Since(began) < within; {
		more = false
		for _, lane := range lanes {
			report, err := step(ctx, lane)
			more = more || report.More
			if err != nil && ctx.Err() == nil {
				return more, err
			}
		}
	}
	return more || ctx.Err() != nil, nil
}

// Drain decides the queued requests of the lanes until the lanes are empty, or
// until the time is over. It does not use River: the wakes stay, and do no harm.
// When ctx ends, the requests being decided stay queued, and the report counts
// what was decided.
func Drain(ctx context.Context, lanes []*queues.Lane, within time.Duration) (report DrainReport, err error) {
	began := time.Now()
	report.More, err = repeat(ctx, lanes, within, func(ctx context.Context, lane *queues.Lane) (queues.Report, error) {
		if lane == lanes[0] {
			report.Passes++
		}
		tick, err := lane.Tick(ctx)
		report.add(tick)
		return tick, err
	})
	if err != nil {
		return report, err
	}
	report.More = report.More || slices.ContainsFunc(lanes, (*queues.Lane).BreakerOpen)
	report.Seconds = time.Since(began).Seconds()
	telemetry.JobSucceeded(ctx, "drain")
	return report, nil
}

// RecoverReport is what a bounded recovery did.
type RecoverReport struct {
	// Tried is how many requests were taken over and tried alone; some of them
	// may be tried again later.
	Tried    int `json:"tried"`
	Held     int `json:"held"`
	Rejected int `json:"rejected"`
	// Checkouts is what was done with the checkouts that were due.
	Checkouts checkouts.Report `json:"checkouts"`
	// More means that the time was up, or the program stopped, while requests
	// or checkouts were left.
	More    bool    `json:"more"`
	Seconds float64 `json:"seconds"`
}

// recoverBatch is how many requests are taken over at a time.
const recoverBatch = 100

// Recover takes over the requests of the lanes whose isolated retry was not
// finished, and the checkouts that are due, until there are no more or the time
// is over. Several processes may run it at once.
func (m *Maintenance) Recover(ctx context.Context, lanes []*queues.Lane, within time.Duration) (report RecoverReport, err error) {
	began := time.Now()
	var group errgroup.Group // without a context: an error of one part does not stop the other
	group.Go(func() (err error) {
		ctx, cancel := context.WithTimeout(ctx, within)
		defer cancel()
		report.Checkouts, err = m.recoverCheckouts(ctx)
		return err
	})
	more, err := repeat(ctx, lanes, within, func(ctx context.Context, lane *queues.Lane) (queues.Report, error) {
		tried, err := lane.Recover(ctx, recoverBatch)
		report.Tried += tried.Retried
		report.Held += tried.Held
		report.Rejected += tried.Rejected
		return tried, err
	})
	err = errors.Join(err, group.Wait())
	report.More = more || report.Checkouts.More
	report.Seconds = time.Since(began).Seconds()
	if err == nil {
		telemetry.JobSucceeded(ctx, "recover")
	}
	return report, err
}

// recoverCheckouts takes the checkouts that are due, until none is or ctx ends,
// which is no error.
func (m *Maintenance) recoverCheckouts(ctx context.Context) (report checkouts.Report, err error) {
	for {
		pass, err := m.Recovery.RunOnce(ctx)
		report.Claimed += pass.Claimed
		report.Committed += pass.Committed
		report.Compensated += pass.Compensated
		report.Failed += pass.Failed
		report.Pending += pass.Pending
		report.AskedLate += pass.AskedLate
		report.Errors += pass.Errors
		report.More = pass.More || ctx.Err() != nil
		if ctx.Err() != nil {
			return report, nil
		}
		if err != nil || !pass.Unfinished() {
			return report, err
		}
	}
}
