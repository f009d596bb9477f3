package wiring

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"

	"github.com/holdfast/holdfast/internal/checkouts"
	"github.com/holdfast/holdfast/internal/lanes"
	"github.com/holdfast/holdfast/internal/live"
	"github.com/holdfast/holdfast/internal/queues"
	"github.com/holdfast/holdfast/internal/telemetry"
	"github.com/holdfast/holdfast/sweeper"
)

// MaintenanceConfig configures [Maintenance].
type MaintenanceConfig struct {
	Log       *slog.Logger
	Bounds    sweeper.Config
	Checkouts checkouts.Config
	// Sweep and Purge are when one of the workers runs these passes.
	Sweep, Purge river.PeriodicSchedule
	// A purge is divided into Parts, of which this process does Part; the zero
	// values are all of it.
	Part, Parts int
}

// Maintenance is what the passes work with, in a worker, in the library's
// client and in the one-shot program.
type Maintenance struct {
	Sweeper  *sweeper.Sweeper
	Recovery *checkouts.Recovery

	db     *pgxpool.Pool
	config MaintenanceConfig
}

// NewMaintenance makes the passes, which do not run yet.
func NewMaintenance(db *pgxpool.Pool, c MaintenanceConfig) (*Maintenance, error) {
	c.Parts = max(c.Parts, 1)
	s, err := sweeper.New(db, c.Log, c.Bounds)
	if err != nil {
		return nil, err
	}
	recovery, err := checkouts.NewRecovery(db, c.Checkouts)
	return &Maintenance{Sweeper: s, Recovery: recovery, db: db, config: c}, err
}

// recoverEvery is how often a worker takes the checkouts that are due.
const recoverEvery = time.Second

// Passes are the passes that a worker runs. Its lanes take over requests, so
// "recover" is for checkouts only. It is no job of River, because a payment must
// not wait behind a sweep.
func (m *Maintenance) Passes() *Passes {
	return &Passes{Log: m.config.Log, Table: []Pass{
		{Name: "sweep", RunOnce: m.sweep, Schedule: m.config.Sweep},
		{Name: "recover", RunOnce: m.recover, Every: recoverEvery},
		{Name: "purge", RunOnce: m.purge, Schedule: m.config.Purge},
	}}
}

func (m *Maintenance) sweep(ctx context.Context) (more bool, err error) {
	report, err := m.Sweeper.RunOnce(ctx)
	if report.ExpiredCount > 0 {
		m.config.Log.InfoContext(ctx, "swept", "expired_count", report.ExpiredCount, "more", report.More)
	}
	return report.More && report.ExpiredCount > 0, err
}

func (m *Maintenance) recover(ctx context.Context) (more bool, err error) {
	report, err := m.Recovery.RunOnce(ctx)
	if report != (checkouts.Report{Claimed: report.Pending, Pending: report.Pending}) {
		m.config.Log.InfoContext(ctx, "recovered checkouts", "report", report)
	}
	return report.Unfinished(), err
}

func (m *Maintenance) purge(ctx context.Context) (more bool, err error) {
	report, err := m.PurgeOnce(ctx)
	if report != (PurgeReport{}) {
		m.config.Log.InfoContext(ctx, "purged", "report", report)
	}
	return report.Unfinished(), err
}

// RunOnce runs the pass of that name, with the lanes for "drain" and "recover",
// for the given time at most; see [holdfast.Client.RunOnce].
func (m *Maintenance) RunOnce(ctx context.Context, served []*queues.Lane, pass string, within time.Duration) (any, error) {
	switch pass {
	case "sweep":
		var report sweeper.Report
		stopped, err := m.bounded(ctx, pass, within, func(ctx context.Context) (err error) {
			report, err = m.Sweeper.RunOnce(ctx)
			return err
		})
		report.More = report.More || stopped
		return report, err
	case "purge":
		var report PurgeReport
		stopped, err := m.bounded(ctx, pass, within, func(ctx context.Context) (err error) {
			report, err = m.PurgeOnce(ctx)
			return err
		})
		report.More = report.More || stopped
		return report, err
	case "drain":
		return Drain(ctx, served, within)
	case "recover":
		return m.Recover(ctx, served, within)
	}
	return struct{}{}, fmt.Errorf("there is no pass %q", pass)
}

// Unfinished is the report of a pass that could not begin and left all its work.
func Unfinished(pass string) any {
	switch pass {
	case "sweep":
		return sweeper.Report{More: true}
	case "purge":
		return PurgeReport{PurgeReport: sweeper.PurgeReport{More: true}}
	case "drain":
		return DrainReport{More: true}
	default:
		return RecoverReport{More: true}
	}
}

// bounded runs a pass. stopped means that it ended because the time was over or
// with ctx, so that work may be left. That is not an error: the next pass
// continues.
func (m *Maintenance) bounded(ctx context.Context, pass string, within time.Duration, run func(context.Context) error) (stopped bool, err error) {
	bounded, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	err = run(bounded)
	if err != nil && bounded.Err() != nil {
		stopped, err = true, nil
	}
	if err == nil {
		telemetry.JobSucceeded(ctx, pass)
	}
	return stopped, err
}

// PurgeReport is what one purge deleted.
type PurgeReport struct {
	sweeper.PurgeReport

	// Wakes counts deleted River jobs that no worker took.
	Wakes int64 `json:"wakes"`
	// LiveTickets counts deleted tickets that expired unused.
	LiveTickets int64 `json:"live_tickets"`
}

const (
	// wakeRetention is the age at which a purge deletes a wake. A tick has done
	// its work long before.
	wakeRetention = time.Hour
	// ticketsBatch is how many expired tickets one purge deletes. A tenant
	// deletes its own when it makes others.
	ticketsBatch = 10_000
)

// PurgeOnce deletes what is old in this process's part of the streams. Workers
// complete and delete wakes. If none runs, the wakes stay, so the first part
// also deletes old wakes.
func (m *Maintenance) PurgeOnce(ctx context.Context) (report PurgeReport, err error) {
	streams, err := lanes.Streams(ctx, m.db)
	if err != nil {
		return report, err
	}
	report.PurgeReport, err = m.Sweeper.PurgeOnce(ctx, m.share(streams))
	if err != nil || ctx.Err() != nil || m.config.Part > 0 {
		return report, err
	}
	var more bool
	report.Wakes, more, err = queues.PurgeWakes(ctx, m.db, wakeRetention)
	report.More = report.More || more
	if err != nil || ctx.Err() != nil {
		return report, err
	}
	report.LiveTickets, err = live.PurgeTickets(ctx, m.db, ticketsBatch)
	report.More = report.More || report.LiveTickets == ticketsBatch
	return report, err
}

// share deals the streams out to the parts in turn.
func (m *Maintenance) share(streams []lanes.Stream) (own []lanes.Stream) {
	for i, stream := range streams {
		if i%m.config.Parts == m.config.Part {
			own = append(own, stream)
		}
	}
	return own
}
