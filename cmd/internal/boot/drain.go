package boot

import (
	"context"
	"errors"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/holdfast/holdfast/checkouts"
	"github.com/holdfast/holdfast/internal/telemetry"
	"github.com/holdfast/holdfast/queues"
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

// Drain decides the queued requests of this process's lanes until the lanes are
// empty, or until ONESHOT_TIME_MAX is over. It does not use River: the wakes
// stay, and do no harm. When ctx ends, the requests being decided stay queued,
// and the report counts what was decided.
func (p *Program) Drain(ctx context.Context) (report DrainReport, err error) {
	db, err := p.openDrains(ctx)
	if err != nil {
		report.More = true
		return report, ignoreStop(ctx, err)
	}
	defer db.Close()
	lanes, err := p.lanes(db, nil)
	if err != nil {
		return report, err
	}
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, p.Config.Lanes.OneShotMax+passGrace)
	defer cancel()
	for report.More = true; report.More && ctx.Err() == nil && time.Since(began) < p.Config.Lanes.OneShotMax; {
		report.Passes++
		report.More = false
		for _, lane := range lanes {
			tick, err := lane.Tick(ctx)
			report.add(tick)
			report.More = report.More || tick.More
			if err != nil && ctx.Err() == nil {
				return report, err
			}
		}
	}
	report.More = report.More || ctx.Err() != nil || slices.ContainsFunc(lanes, (*queues.Lane).BreakerOpen)
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

// Recover takes over the requests of every lane whose isolated retry was not
// finished, and the checkouts that are due, until there are no more or
// ONESHOT_TIME_MAX is over. Several processes may run it at once.
func (p *Program) Recover(ctx context.Context) (report RecoverReport, err error) {
	db, err := p.openReady(ctx, pool{name: "recover", conns: 4, parameters: shortStatements})
	if err != nil {
		report.More = true
		return report, ignoreStop(ctx, err)
	}
	defer db.Close()
	lanes, err := p.lanes(db, nil)
	if err != nil {
		return report, err
	}
	began := time.Now()
	var group errgroup.Group // without a context: an error of one part does not stop the other
	group.Go(func() (err error) {
		ctx, cancel := context.WithTimeout(ctx, p.Config.Lanes.OneShotMax)
		defer cancel()
		report.Checkouts, err = p.recoverCheckouts(ctx, db)
		return err
	})
	requests, err := p.recoverRequests(ctx, lanes)
	err = errors.Join(err, group.Wait())
	requests.Checkouts = report.Checkouts
	requests.More = requests.More || report.Checkouts.More
	requests.Seconds = time.Since(began).Seconds()
	if err == nil {
		telemetry.JobSucceeded(ctx, "recover")
	}
	return requests, err
}

// recoverRequests is the part of Recover that takes over requests.
func (p *Program) recoverRequests(ctx context.Context, lanes []*queues.Lane) (report RecoverReport, err error) {
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, p.Config.Lanes.OneShotMax+passGrace)
	defer cancel()
	for report.More = true; report.More && ctx.Err() == nil && time.Since(began) < p.Config.Lanes.OneShotMax; {
		report.More = false
		for _, lane := range lanes {
			tried, err := lane.Recover(ctx, recoverBatch)
			report.Tried += tried.Retried
			report.Held += tried.Held
			report.Rejected += tried.Rejected
			report.More = report.More || tried.More
			if err != nil && ctx.Err() == nil {
				return report, err
			}
		}
	}
	report.More = report.More || ctx.Err() != nil
	return report, nil
}
