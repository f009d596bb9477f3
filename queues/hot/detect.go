package hot

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/lanes"
	"github.com/holdfast/holdfast/internal/queues"
	"github.com/holdfast/holdfast/internal/requestrows"
	"github.com/holdfast/holdfast/internal/signals"
	"github.com/holdfast/holdfast/internal/sleep"
	"github.com/holdfast/holdfast/internal/telemetry"
)

// DetectorConfig configures when the detector makes variants hot, and normal
// again. The zero value of a field is its default.
type DetectorConfig struct {
	// PromoteRate is the rate in requests per second at which a variant becomes
	// hot; default 200. A request that was rejected as out of stock counts
	// twice. Below DemoteRate, default a quarter of PromoteRate, a hot variant
	// is quiet.
	PromoteRate, DemoteRate float64
	// PromoteDepth is how many of a variant's requests wait in the normal lane
	// when it becomes hot, at any rate; default 500, at most 2,000.
	PromoteDepth int
	// PromoteAfter is how long a variant must be busy to become hot; default 2
	// s. DemoteAfter is how long it must be quiet to become normal again;
	// default 30 s. Both apply to diverted tenants too.
	PromoteAfter, DemoteAfter time.Duration
	// VariantsMax is how many variants the detector keeps hot at most, over all
	// tenants; default 64, at most 256. TenantMax is the same for
	// one tenant; default a quarter of VariantsMax. Pinned variants do not
	// count.
	VariantsMax, TenantMax int
	// FloodRate is the rate in requests per second to the normal lane at which
	// a tenant is diverted; default 1,000. It is diverted only if its requests
	// in the shared stream are more than its share, and number at least
	// FloodDepth, default 1,000, at most 2,000, or the stream has about as many
	// as a pass reads.
	FloodRate  float64
	FloodDepth int
	// Every is the interval of passes, over all processes together; default 1
	// s.
	Every time.Duration
}

// scanMax is how many requests of a stream a pass reads. No threshold of a
// depth is higher.
const scanMax = 2000

func (c DetectorConfig) withDefaults() (DetectorConfig, error) {
	c.PromoteRate = cmp.Or(c.PromoteRate, 200)
	c.DemoteRate = cmp.Or(c.DemoteRate, c.PromoteRate/4)
	c.PromoteDepth = cmp.Or(c.PromoteDepth, 500)
	c.PromoteAfter = cmp.Or(c.PromoteAfter, 2*time.Second)
	c.DemoteAfter = cmp.Or(c.DemoteAfter, 30*time.Second)
	c.VariantsMax = cmp.Or(c.VariantsMax, 64)
	c.TenantMax = cmp.Or(c.TenantMax, (c.VariantsMax+3)/4)
	c.FloodRate = cmp.Or(c.FloodRate, 1000)
	c.FloodDepth = cmp.Or(c.FloodDepth, 1000)
	c.Every = cmp.Or(c.Every, time.Second)
	switch {
	case c.DemoteRate <= 0 || c.PromoteRate < c.DemoteRate || c.FloodRate <= 0:
		return c, fmt.Errorf("detector: want 0 < demote_rate (%g) ≤ promote_rate (%g), flood_rate (%g) > 0", c.DemoteRate, c.PromoteRate, c.FloodRate)
	case min(c.PromoteDepth, c.FloodDepth) < 1 || max(c.PromoteDepth, c.FloodDepth) > scanMax:
		return c, fmt.Errorf("detector: want promote_depth (%d) and flood_depth (%d) between 1 and %d", c.PromoteDepth, c.FloodDepth, scanMax)
	case min(c.PromoteAfter, c.DemoteAfter) < 0 || c.Every <= 0:
		return c, fmt.Errorf("detector: want promote_after (%s) and demote_after (%s) ≥ 0, every (%s) > 0", c.PromoteAfter, c.DemoteAfter, c.Every)
	case c.VariantsMax < 1 || c.VariantsMax > signals.VariantsRecorded || c.TenantMax < 1:
		return c, fmt.Errorf("detector: want 1 ≤ variants_max (%d) ≤ %d, tenant_max (%d) ≥ 1", c.VariantsMax, signals.VariantsRecorded, c.TenantMax)
	}
	return c, nil
}

// Detector moves variants between the lanes, and diverts tenants, by the
// signals of all processes. Any number of processes may run one: a row lock
// lets one of them decide at a time.
type Detector struct {
	db       *pgxpool.Pool
	inserter *queues.WakeInserter
	log      *slog.Logger
	config   DetectorConfig
}

// NewDetector makes a detector, which Run starts.
func NewDetector(db *pgxpool.Pool, inserter *queues.WakeInserter, log *slog.Logger, config DetectorConfig) (*Detector, error) {
	config, err := config.withDefaults()
	if err != nil {
		return nil, err
	}
	return &Detector{db: db, inserter: inserter, log: log, config: config}, nil
}

// detected is what a pass did. Ran is false if there was nothing to detect, or
// another process has just made a pass.
type detected struct {
	Ran      bool `json:"ran"`
	Promoted int  `json:"promoted"`
	Demoted  int  `json:"demoted"`
	Diverted int  `json:"diverted"`
	Restored int  `json:"restored"`
}

// passTimeout bounds a pass.
const passTimeout = 5 * time.Second

// detectorSQL also begins a pass if the last one is in the future, because the
// clock was set back.
const detectorSQL = `
SELECT greatest(0, extract(epoch FROM clock_timestamp() - greatest(d.ran_at, clock_timestamp() - interval '1 day')))::double precision,
       d.seen, clock_timestamp(),
       (SELECT control.paused FROM ` + lanes.Controls + ` control WHERE control.lane = 'hot')
FROM hot_detector d
WHERE (d.ran_at <= clock_timestamp() - $1::interval OR d.ran_at > clock_timestamp())
  AND (EXISTS (SELECT FROM hot_signals)
       OR EXISTS (SELECT FROM hot_observations)
       OR EXISTS (SELECT FROM diverted_tenants)
       OR EXISTS (SELECT FROM hot_variants h WHERE NOT h.pinned AND h.state <> 'leaving'))
FOR NO KEY UPDATE OF d SKIP LOCKED`

// runOnce makes one pass: it reads, decides and moves in one transaction. If it
// fails, nothing is moved and nothing is recorded. It may be called at any
// time, in any number of processes.
func (d *Detector) runOnce(ctx context.Context) (done detected, err error) {
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
		candidates, err := p.load(ctx, tx)
		if err != nil {
			return err
		}
		moves, observations := decide(p, d.config, candidates)
		done, err = d.moveTx(ctx, tx, moves)
		if err != nil {
			return err
		}
		done.Ran = true
		return p.persist(ctx, tx, observations)
	})
	if err != nil {
		return detected{}, fmt.Errorf("detect hot variants: %w", err)
	}
	for action, n := range map[string]int{lanes.Promoted: done.Promoted, lanes.Demoted: done.Demoted, lanes.Diverted: done.Diverted, lanes.Restored: done.Restored} {
		telemetry.Moved(ctx, action, n)
	}
	return done, nil
}

// Run makes passes until ctx ends. It logs a pass that fails, and the next one
// tries again.
func (d *Detector) Run(ctx context.Context) error {
	sleep.Every(ctx, d.config.Every, func() {
		passing, finish := telemetry.Verb(ctx, "hot.detect")
		done, err := d.runOnce(passing)
		outcome := ""
		if done.Promoted+done.Demoted+done.Diverted+done.Restored > 0 {
			outcome = "moved"
			d.log.InfoContext(ctx, "moved between the lanes", "report", done)
		}
		finish(outcome, err)
		if err != nil && ctx.Err() == nil {
			d.log.WarnContext(ctx, "a pass of the detector failed; the next one tries again", "error", err)
		}
	})
	return nil
}

// restoreSQL waits until the tenant has no queued request in the stream of
// diverted tenants. Otherwise its later requests would wait for those at the
// head of the shared stream, before its neighbours. The condition is inside a
// CASE, so that the planner walks the stream from its mark.
const restoreSQL = lanes.Restore + `
  AND NOT EXISTS (
      SELECT
      FROM ` + lanes.ParallelSlots + ` s
      CROSS JOIN LATERAL (
          SELECT
          FROM reservation_requests r
          WHERE r.lane = s.lane AND r.slot = s.slot AND r.sequence > s.low_water AND r.status = 'queued'
            AND CASE WHEN r.tenant_id = $1 THEN true END
          ORDER BY r.sequence
          LIMIT 1
      ) queued
      WHERE s.slot = d.slot)`

// moveTx makes the moves that are still valid, records each, and wakes the
// slots to which they give work. It locks the slots first. Moves whose slots it
// can't lock are left to a later pass.
func (d *Detector) moveTx(ctx context.Context, tx pgx.Tx, moves []lanes.Move) (done detected, err error) {
	moves, err = lanes.PrepareMovesTx(ctx, tx, moves)
	if err != nil || len(moves) == 0 {
		return done, err
	}
	b := &pgx.Batch{}
	var made []lanes.Move
	for i := range moves {
		m := &moves[i]
		queued, count := done.queue(b, m)
		queued.Exec(func(tag pgconn.CommandTag) error {
			if tag.RowsAffected() > 0 {
				*count++
				made = append(made, *m)
			}
			return nil
		})
	}
	if err := tx.SendBatch(ctx, b).Close(); err != nil {
		return done, fmt.Errorf("move %d between the lanes: %w", len(moves), err)
	}
	origin := audit.Origin{Actor: audit.Job("detector"), CorrelationID: requestrows.NewID().String()}
	return done, lanes.RecordTx(ctx, tx, d.inserter, made, origin)
}

// queue adds the move's statement to b, and returns the counter of the move's
// action.
func (d *detected) queue(b *pgx.Batch, m *lanes.Move) (*pgx.QueuedQuery, *int) {
	switch m.Action {
	case lanes.Promoted:
		return m.Queue(b), &d.Promoted
	case lanes.Demoted:
		return m.Queue(b), &d.Demoted
	case lanes.Diverted:
		return m.Queue(b), &d.Diverted
	default:
		return b.Queue(restoreSQL, m.TenantID), &d.Restored
	}
}
