package hot

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/requests"
)

const (
	// variantPlaces and tenantPlaces bound what a process remembers of a window.
	variantPlaces, tenantPlaces = 1024, 256
	// VariantsNoted and tenantsNoted bound what it tells of one: the most frequent. Of a variant that nobody tells of the
	// detector believes that it is quiet, so no more may be hot by themselves.
	VariantsNoted, tenantsNoted = 256, 64
	// noteEvery is how long a window is.
	noteEvery = time.Second
)

// Signals is what one process sees arrive: it counts what is admitted, by variant and by tenant, and notes the most
// frequent of each window in the database, where the detector adds up all processes. While nothing arrives it writes
// nothing. It is safe for concurrent use.
type Signals struct {
	db     *pgxpool.Pool
	log    *slog.Logger
	source uuid.UUID

	mu       sync.Mutex
	variants frequent[subjectID]
	tenants  frequent[uuid.UUID]
	began    time.Time
}

// subjectID names what a signal is of: a variant, or with an empty VariantID a whole tenant, or with neither everybody.
type subjectID struct {
	TenantID  uuid.UUID
	VariantID string
}

// NewSignals makes the signals of this process; Run makes them known.
func NewSignals(db *pgxpool.Pool, log *slog.Logger) *Signals {
	return &Signals{
		db: db, log: log, source: uuid.New(), began: time.Now(),
		variants: newFrequent[subjectID](variantPlaces), tenants: newFrequent[uuid.UUID](tenantPlaces),
	}
}

// Observe counts an admitted group. It takes some hundred nanoseconds a request at most, and no database.
func (s *Signals) Observe(group []requests.Submission) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(group) > 0 {
		id, run := subjectID{group[0].TenantID, group[0].VariantID}, 1
		for run < len(group) && group[run].VariantID == id.VariantID && group[run].TenantID == id.TenantID {
			run++
		}
		s.variants.add(id, int64(run))
		s.tenants.add(id.TenantID, int64(run))
		group = group[run:]
	}
}

// signal is how much arrived of a subject, a second.
type signal struct {
	subjectID
	rate float64
}

// take ends the window and returns its most frequent variants and tenants, with all that arrived first; none if nothing
// did.
func (s *Signals) take() []signal {
	s.mu.Lock()
	defer s.mu.Unlock()
	seconds := max(time.Since(s.began).Seconds(), time.Millisecond.Seconds())
	s.began = time.Now()
	if s.tenants.total == 0 {
		return nil
	}
	perSecond := func(count int64) float64 { return float64(count) / seconds }
	variants, tenants := make([]signal, 0, len(s.variants.counts)), make([]signal, 0, len(s.tenants.counts))
	for id, count := range s.variants.counts {
		variants = append(variants, signal{subjectID{id.TenantID, strings.Clone(id.VariantID)}, perSecond(*count)})
	}
	for id, count := range s.tenants.counts {
		tenants = append(tenants, signal{subjectID{TenantID: id}, perSecond(*count)})
	}
	all := signal{rate: perSecond(s.tenants.total)}
	s.variants.reset()
	s.tenants.reset()
	return slices.Concat([]signal{all}, busiest(variants, VariantsNoted), busiest(tenants, tenantsNoted))
}

func busiest(signals []signal, n int) []signal {
	slices.SortFunc(signals, func(a, b signal) int { return cmp.Compare(b.rate, a.rate) })
	return signals[:min(n, len(signals))]
}

const noteSQL = `
INSERT INTO hot_signals (tenant_id, variant_id, source, rate, noted_at)
SELECT s.tenant_id, s.variant_id, $1, s.rate, clock_timestamp()
FROM unnest($2::uuid[], $3::text[], $4::double precision[]) AS s (tenant_id, variant_id, rate)
ON CONFLICT (tenant_id, variant_id, source) DO UPDATE
SET rate = excluded.rate, noted_at = excluded.noted_at`

// NoteOnce ends the window and notes what it saw. What can't be written is forgotten: the next window tells again.
func (s *Signals) NoteOnce(ctx context.Context) error {
	signals := s.take()
	if len(signals) == 0 {
		return nil
	}
	tenants, variants, rates := make([][16]byte, len(signals)), make([]string, len(signals)), make([]float64, len(signals))
	for i, sig := range signals {
		tenants[i], variants[i], rates[i] = sig.TenantID, sig.VariantID, sig.rate
	}
	if _, err := s.db.Exec(ctx, noteSQL, s.source, tenants, variants, rates); err != nil {
		return fmt.Errorf("note what arrived: %w", err)
	}
	return nil
}

// Run notes each window as it ends, until ctx ends.
func (s *Signals) Run(ctx context.Context) error {
	return every(ctx, noteEvery, func() {
		noting, cancel := context.WithTimeout(ctx, noteEvery)
		defer cancel()
		if err := s.NoteOnce(noting); err != nil && ctx.Err() == nil {
			s.log.WarnContext(ctx, "what arrived was not noted", "error", err)
		}
	})
}

// every calls do now and then until ctx ends, the first time after one interval.
func every(ctx context.Context, interval time.Duration, do func()) error {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			do()
		}
	}
}
