package boot

import (
	"context"
	"slices"
	"time"

	"github.com/holdfast/holdfast/internal/telemetry"
	"github.com/holdfast/holdfast/queues"
)

// DrainReport is what a bounded drain did.
type DrainReport struct {
	Claimed  int `json:"claimed"`
	Held     int `json:"held"`
	Rejected int `json:"rejected"`
	Careful  int `json:"careful"`
	// More means that the time was up before the lanes were empty.
	More    bool    `json:"more"`
	Passes  int     `json:"passes"`
	Seconds float64 `json:"seconds"`
}

func (d *DrainReport) add(r queues.Report) {
	d.Claimed += r.Claimed
	d.Held += r.Held
	d.Rejected += r.Rejected
	d.Careful += r.Careful
}

// passGrace is how long what is being decided when the time of a pass is up may take to end.
const passGrace = 5 * time.Second

// Drain works what stands in the lanes of this process until they are empty, or until ONESHOT_TIME_MAX is over, without
// River: its wakes stay, and do no harm. When ctx ends, what is being decided stays queued, and the report tells what was.
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
	report.More = report.More || ctx.Err() != nil || slices.ContainsFunc(lanes, (*queues.Lane).Broken)
	report.Seconds = time.Since(began).Seconds()
	telemetry.JobSucceeded(ctx, "drain")
	return report, nil
}

// RecoverReport is what a bounded recovery did.
type RecoverReport struct {
	// Tried is how many requests were taken over and tried alone; some of them may be tried again later.
	Tried    int `json:"tried"`
	Held     int `json:"held"`
	Rejected int `json:"rejected"`
	// More means that the time was up, or the program stopped, before there were none.
	More    bool    `json:"more"`
	Seconds float64 `json:"seconds"`
}

// recoverBatch is how many requests are taken over in one go.
const recoverBatch = 100

// Recover takes over the requests whose careful attempt nobody finished, of every lane, until there are none or
// ONESHOT_TIME_MAX is over. It may run at once in several processes.
func (p *Program) Recover(ctx context.Context) (report RecoverReport, err error) {
	db, err := p.openReady(ctx, pool{name: "recover", conns: 4, parameters: shortStatements})
	if err != nil {
		report.More = true
		return report, ignoreStop(ctx, err)
	}
	defer db.Close()
	lanes, err := p.lanes(db, nil)
	if err != nil || len(lanes) == 0 {
		return report, err
	}
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, p.Config.Lanes.OneShotMax+passGrace)
	defer cancel()
	for report.More = true; report.More && ctx.Err() == nil && time.Since(began) < p.Config.Lanes.OneShotMax; {
		report.More = false
		for _, lane := range lanes {
			tried, err := lane.Recover(ctx, recoverBatch)
			report.Tried += tried.Careful
			report.Held += tried.Held
			report.Rejected += tried.Rejected
			report.More = report.More || tried.More
			if err != nil && ctx.Err() == nil {
				return report, err
			}
		}
	}
	report.More = report.More || ctx.Err() != nil
	report.Seconds = time.Since(began).Seconds()
	telemetry.JobSucceeded(ctx, "recover")
	return report, nil
}
