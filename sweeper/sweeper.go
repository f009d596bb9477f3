package sweeper

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/internal/purge"
	"github.com/holdfast/holdfast/internal/telemetry"
	"github.com/holdfast/holdfast/metered"
	"github.com/holdfast/holdfast/ratelimit"
)

// Config bounds the passes. The zero value of a field is its default.
type Config struct {
	// Batch is how many holds one transaction expires at most; default 500.
	Batch int
	// BatchesMax is how many batches one RunOnce expires at most; default 200.
	// Report.More means that it left a backlog to the next sweep.
	BatchesMax int
	// RequestRetention is how long a finished request and its idempotency key
	// are kept; default 168 h. Those of a live hold and of a checkout are kept
	// at least as long as these. It must be at least the lifetime cap of holds
	// and the TTL of checkouts, which the sweeper does not know: the programs
	// check it when they start, and another caller must choose it so.
	RequestRetention time.Duration
	// AuditRetention is how long the audit record is kept at least; default 0,
	// which is for ever. It is at least 24 h longer than RequestRetention.
	AuditRetention time.Duration
	// MeteredRetention is how long expired tokens, the idempotency keys of
	// commands and the entries of budgets are kept; default 0: commands are not
	// metered, and their tables are not read. Entries, and scopes without a
	// charge, are kept for at least 24 h. No ledger on the database may have a
	// window longer than both 24 h and this retention.
	MeteredRetention time.Duration
	// PurgeMax is how many rows of each table, and of each stream of requests,
	// one PurgeOnce reads at most; default 500,000. PurgeReport.More means that
	// it reached this bound and the next purge continues. In tables with rows to
	// keep it continues behind them, but a new Sweeper begins at their start.
	PurgeMax int
}

// Sweeper runs the passes.
type Sweeper struct {
	db      *pgxpool.Pool
	log     *slog.Logger
	config  Config
	metered *metered.Commands // nil: commands are not metered
	streams sync.Map          // of *purge.Walk[int64], by lanes.Stream
	rates   purge.Walk[ratelimit.RateRef]
}

// New makes a sweeper.
func New(db *pgxpool.Pool, log *slog.Logger, config Config) (*Sweeper, error) {
	config.Batch = cmp.Or(config.Batch, 500)
	config.BatchesMax = cmp.Or(config.BatchesMax, 200)
	config.RequestRetention = cmp.Or(config.RequestRetention, 168*time.Hour)
	config.PurgeMax = cmp.Or(config.PurgeMax, 500_000)
	if config.Batch < 1 || config.Batch > 10_000 || config.BatchesMax < 1 || config.RequestRetention < time.Minute || config.PurgeMax < 1 {
		return nil, fmt.Errorf("sweeper: want 1 ≤ batch (%d) ≤ 10000, batches_max (%d) ≥ 1, request_retention (%s) ≥ 1m, purge_max (%d) ≥ 1",
			config.Batch, config.BatchesMax, config.RequestRetention, config.PurgeMax)
	}
	if least := config.RequestRetention + reservationGrace; config.AuditRetention != 0 && config.AuditRetention < least {
		return nil, fmt.Errorf("sweeper: want audit_retention (%s) 0 or ≥ request_retention + 24h (%s)", config.AuditRetention, least)
	}
	s := &Sweeper{db: db, log: log, config: config}
	if config.MeteredRetention == 0 {
		return s, nil
	}
	if config.MeteredRetention < time.Minute {
		return nil, fmt.Errorf("sweeper: want metered_retention (%s) 0 or ≥ 1m", config.MeteredRetention)
	}
	var err error
	s.metered, err = newMetered(db, config.MeteredRetention)
	if err != nil {
		return nil, err
	}
	return s, nil
}

// Report is what one sweep did.
type Report struct {
	// ExpiredCount is how many holds this sweep ended, without those of a batch
	// during whose commit ctx ended.
	ExpiredCount int `json:"expired_count"`
	// ScannedAt is the time of its last read, on the database's clock.
	ScannedAt time.Time `json:"scanned_at"`
	// More means that the sweep ended at its bound, or at the end of its
	// context, before it had found all due holds. If it also expired some, the
	// next one should begin at once.
	More bool `json:"more"`
	// Skipped are the variants whose due holds the sweep could not end; at most
	// inventory.SkippedMax.
	Skipped []Skipped `json:"skipped,omitempty"`
}

// Skipped is a variant whose due holds a sweep could not end.
type Skipped struct {
	TenantID  uuid.UUID `json:"tenant_id"`
	VariantID string    `json:"variant_id"`
	Error     string    `json:"error"`
}

// RunOnce expires the holds of variants that are past their deadline, batch by
// batch, until no due hold is left or the bound is reached. An error keeps the
// work of the batches before it.
//
// A sweep that reaches its bound, or the deadline of ctx after it has expired
// something, reports More without an error. If it made progress, the next sweep
// should begin at once.
//
// The sweep skips a variant whose due holds it cannot end, logs and reports it,
// and goes on with the others. A tenant with inventory.TenantSkippedMax such
// variants is left out of the rest of the sweep. A variant with inconsistent
// rows is also an error, returned after all is done, because an operator must
// repair it. A variant whose stock another transaction keeps locked is left to
// the next sweep, without an error.
func (s *Sweeper) RunOnce(ctx context.Context) (Report, error) {
	expiry := inventory.NewExpiry(s.db)
	report, err := s.sweep(ctx, expiry)
	var broken []error
	for _, skipped := range expiry.Skipped() {
		variant := skipped.Variant
		report.Skipped = append(report.Skipped, Skipped{variant.TenantID, variant.VariantID, skipped.Err.Error()})
		who := []any{"tenant_id", variant.TenantID, "variant_id", variant.VariantID, "error", skipped.Err}
		if skipped.Broken() {
			s.log.ErrorContext(ctx, "the due holds of a variant cannot be expired; verify shows what is wrong with it", who...)
			broken = append(broken, fmt.Errorf("tenant %s: %w", variant.TenantID, skipped.Err))
		} else {
			s.log.WarnContext(ctx, "a variant is left to the next sweep, because a lock was not given back", who...)
		}
	}
	if len(broken) > 0 && err == nil {
		err = fmt.Errorf("sweep: %d variants were skipped, the first: %w", len(broken), broken[0])
	}
	return report, err
}

// sweep expires batch by batch.
func (s *Sweeper) sweep(ctx context.Context, expiry *inventory.Expiry) (Report, error) {
	var report Report
	for range s.config.BatchesMax {
		swept, err := expiry.Next(ctx, s.config.Batch)
		report.ExpiredCount += swept.Expired
		telemetry.Expired(ctx, "sweep", swept.Expired)
		if err != nil && report.ExpiredCount > 0 && isDeadline(ctx) {
			report.More = true
			return report, nil
		}
		if err != nil {
			return report, fmt.Errorf("sweep: %w", err)
		}
		report.ScannedAt = swept.ScannedAt
		if swept.Found < s.config.Batch {
			return report, nil
		}
	}
	report.More = true
	return report, nil
}

// isDeadline reports whether the context has reached its deadline, and was not
// cancelled.
func isDeadline(ctx context.Context) bool { return errors.Is(ctx.Err(), context.DeadlineExceeded) }
