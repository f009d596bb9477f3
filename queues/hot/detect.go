package hot

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/internal/telemetry"
	"github.com/holdfast/holdfast/requests"
)

// DetectorConfig says when variants become hot by themselves, and normal again. The zero value of a field is its default.
type DetectorConfig struct {
	// PromoteRate is how many requests a second make a variant hot, each that it turned away for want of stock counting
	// twice; default 200. Below DemoteRate, default a quarter of that, a hot one is quiet.
	PromoteRate, DemoteRate float64
	// PromoteDepth is how many of a variant's requests wait in the normal lane when it becomes hot whatever its rate;
	// default 500, at most 2,000.
	PromoteDepth int
	// PromoteAfter is how long a variant must be busy to become hot; default 2 s. DemoteAfter is how long it must be quiet
	// to become normal again; default 30 s. They hold for diverted tenants too.
	PromoteAfter, DemoteAfter time.Duration
	// VariantsMax is how many variants are hot by themselves at most, over all tenants, default 64, at most VariantsNoted;
	// TenantMax of one tenant, default 16. Pinned ones do not count.
	VariantsMax, TenantMax int
	// FloodRate is how many requests a second a tenant sends to the normal lane when it is diverted, if FloodDepth of its
	// requests wait there, or of everybody's more than a pass looks at, and they are more than its part; defaults 1,000 and
	// 1,000, the latter at most 2,000.
	FloodRate  float64
	FloodDepth int
	// Every is how often a pass is made, by all processes together; default 1 s.
	Every time.Duration
}

// LookMax is how many requests of a stream a pass looks at, so no threshold of a depth is higher.
const LookMax = 2000

func (c DetectorConfig) withDefaults() (DetectorConfig, error) {
	setDefault(&c.PromoteRate, 200)
	setDefault(&c.DemoteRate, c.PromoteRate/4)
	setDefault(&c.PromoteDepth, 500)
	setDefault(&c.PromoteAfter, 2*time.Second)
	setDefault(&c.DemoteAfter, 30*time.Second)
	setDefault(&c.VariantsMax, 64)
	setDefault(&c.TenantMax, 16)
	setDefault(&c.FloodRate, 1000)
	setDefault(&c.FloodDepth, 1000)
	setDefault(&c.Every, time.Second)
	switch {
	case c.DemoteRate <= 0 || c.PromoteRate < c.DemoteRate || c.FloodRate <= 0:
		return c, fmt.Errorf("detector: want 0 < demote_rate (%g) ≤ promote_rate (%g), flood_rate (%g) > 0", c.DemoteRate, c.PromoteRate, c.FloodRate)
	case min(c.PromoteDepth, c.FloodDepth) < 1 || max(c.PromoteDepth, c.FloodDepth) > LookMax:
		return c, fmt.Errorf("detector: want promote_depth (%d) and flood_depth (%d) between 1 and %d", c.PromoteDepth, c.FloodDepth, LookMax)
	case min(c.PromoteAfter, c.DemoteAfter) < 0 || c.Every <= 0:
		return c, fmt.Errorf("detector: want promote_after (%s) and demote_after (%s) ≥ 0, every (%s) > 0", c.PromoteAfter, c.DemoteAfter, c.Every)
	case c.VariantsMax < 1 || c.VariantsMax > VariantsNoted || c.TenantMax < 1:
		return c, fmt.Errorf("detector: want 1 ≤ variants_max (%d) ≤ %d, tenant_max (%d) ≥ 1", c.VariantsMax, VariantsNoted, c.TenantMax)
	}
	return c, nil
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Detector moves variants between the lanes, and diverts tenants, by what all processes see. Any number of processes may
// run one: a row's lock lets one of them at a time decide.
type Detector struct {
	db     *pgxpool.Pool
	ringer requests.Ringer
	log    *slog.Logger
	config DetectorConfig
}

// NewDetector makes a detector; Run makes it work.
func NewDetector(db *pgxpool.Pool, ringer requests.Ringer, log *slog.Logger, config DetectorConfig) (*Detector, error) {
	config, err := config.withDefaults()
	if err != nil {
		return nil, err
	}
	return &Detector{db: db, ringer: ringer, log: log, config: config}, nil
}

// Detected is what a pass did. Ran is false where there was nothing to look at, or another process looked just now.
type Detected struct {
	Ran      bool `json:"ran"`
	Promoted int  `json:"promoted"`
	Demoted  int  `json:"demoted"`
	Diverted int  `json:"diverted"`
	LetBack  int  `json:"let_back"`
}

// passTimeout bounds a pass.
const passTimeout = 5 * time.Second

// detectorSQL makes a pass too where the last one was in the future: the clock was set back since.
const detectorSQL = `
SELECT greatest(0, extract(epoch FROM clock_timestamp() - greatest(d.ran_at, clock_timestamp() - interval '1 day')))::double precision,
       d.seen, clock_timestamp(),
       (SELECT control.paused FROM lane_slots control WHERE control.lane = 'hot' AND control.slot = -1)
FROM hot_detector d
WHERE (d.ran_at <= clock_timestamp() - $1::interval OR d.ran_at > clock_timestamp())
  AND (EXISTS (SELECT FROM hot_signals)
       OR EXISTS (SELECT FROM hot_watches)
       OR EXISTS (SELECT FROM diverted_tenants)
       OR EXISTS (SELECT FROM hot_variants h WHERE NOT h.pinned AND h.state <> 'leaving'))
FOR NO KEY UPDATE OF d SKIP LOCKED`

// RunOnce is one pass: it looks, decides and moves, in one transaction. If it ends in the middle, nothing was moved and
// nothing recorded. It is right at any time, in any number of processes.
func (d *Detector) RunOnce(ctx context.Context) (done Detected, err error) {
	ctx, cancel := context.WithTimeout(ctx, passTimeout)
	defer cancel()
	err = pgx.BeginFunc(ctx, d.db, func(tx pgx.Tx) error {
		var p pass
		err := tx.QueryRow(ctx, detectorSQL, d.config.Every*9/10).Scan(&p.since, &p.seen, &p.now, &p.paused)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		if err != nil {
			return err
		}
		subjects, err := p.look(ctx, tx)
		if err != nil {
			return err
		}
		moves, watches := decide(p, d.config, subjects)
		done, err = d.moveTx(ctx, tx, moves)
		if err != nil {
			return err
		}
		done.Ran = true
		return p.leave(ctx, tx, watches)
	})
	if err != nil {
		return Detected{}, fmt.Errorf("look for hot variants: %w", err)
	}
	for action, n := range map[string]int{promoted: done.Promoted, demoted: done.Demoted, diverted: done.Diverted, letBack: done.LetBack} {
		telemetry.Moved(ctx, action, n)
	}
	return done, nil
}

// Run makes passes until ctx ends. One that fails is only worth a line in the log: the next one looks again.
func (d *Detector) Run(ctx context.Context) error {
	return every(ctx, d.config.Every, func() {
		passing, finish := telemetry.Verb(ctx, "hot.detect")
		done, err := d.RunOnce(passing)
		outcome := ""
		if done.Promoted+done.Demoted+done.Diverted+done.LetBack > 0 {
			outcome = "moved"
			d.log.InfoContext(ctx, "moved between the lanes", "report", done)
		}
		finish(outcome, err)
		if err != nil && ctx.Err() == nil {
			d.log.WarnContext(ctx, "a look for hot variants failed; the next one tries again", "error", err)
		}
	})
}
