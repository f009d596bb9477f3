package signals

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
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/internal/requestrows"
	"github.com/holdfast/holdfast/internal/sleep"
)

const (
	// variantCapacity and tenantCapacity bound what a process counts in one
	// window.
	variantCapacity, tenantCapacity = 1024, 256
	// VariantsRecorded and tenantsRecorded bound what a process writes of one
	// window: the most frequent. The detector takes a variant that no process
	// reports for quiet, so it keeps no more than VariantsRecorded hot.
	VariantsRecorded, tenantsRecorded = 256, 64
	// MaxAge is how long a signal counts: two and a half windows. It is stored
	// for retention after it was last written. expireMax bounds how many one
	// Expire deletes.
	MaxAge    = 5 * window / 2
	window    = time.Second
	retention = 10 * time.Second
	expireMax = 10_000
)

// Signals counts what one process admits, by variant and by tenant. It writes
// the most frequent of each window to the database, where the detector adds up
// all processes. While nothing arrives it writes nothing. It is safe for
// concurrent use.
type Signals struct {
	db     *pgxpool.Pool
	log    *slog.Logger
	source uuid.UUID

	mu       sync.Mutex
	variants frequent[counted]
	tenants  frequent[uuid.UUID]
	began    time.Time
}

// counted names what a signal counts: a variant, a tenant if VariantID is
// empty, or all tenants if TenantID is zero too.
type counted struct {
	TenantID  uuid.UUID
	VariantID string
}

// New makes the signals of this process. Run writes them.
func New(db *pgxpool.Pool, log *slog.Logger) *Signals {
	return &Signals{
		db: db, log: log, source: uuid.New(), began: time.Now(),
		variants: newFrequent[counted](variantCapacity), tenants: newFrequent[uuid.UUID](tenantCapacity),
	}
}

// Observe counts an admitted group. It takes at most some hundred nanoseconds
// per request, and does not use the database.
func (s *Signals) Observe(group []requestrows.Submission) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(group) > 0 {
		id, run := counted{group[0].TenantID, group[0].VariantID}, 1
		for run < len(group) && group[run].VariantID == id.VariantID && group[run].TenantID == id.TenantID {
			run++
		}
		if group[0].Lines == nil {
			s.variants.add(id, int64(run))
		} else {
			s.observeLines(group[:run])
		}
		s.tenants.add(id.TenantID, int64(run))
		group = group[run:]
	}
}

// observeLines counts each variant of requests of several lines.
func (s *Signals) observeLines(group []requestrows.Submission) {
	for i := range group {
		lines := group[i].Lines.Items
		for j := range lines {
			for _, variant := range requestrows.Variants(&lines[j]) {
				s.variants.add(counted{group[i].TenantID, variant}, 1)
			}
		}
	}
}

// signal is the rate at which requests of a candidate arrive, per second.
type signal struct {
	counted
	rate float64
}

// endWindow ends the window. It returns the total first, then the most frequent
// variants and tenants; nothing if no request arrived.
func (s *Signals) endWindow() []signal {
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
		variants = append(variants, signal{counted{id.TenantID, strings.Clone(id.VariantID)}, perSecond(*count)})
	}
	for id, count := range s.tenants.counts {
		tenants = append(tenants, signal{counted{TenantID: id}, perSecond(*count)})
	}
	all := signal{rate: perSecond(s.tenants.total)}
	s.variants.reset()
	s.tenants.reset()
	return slices.Concat([]signal{all}, busiest(variants, VariantsRecorded), busiest(tenants, tenantsRecorded))
}

func busiest(signals []signal, n int) []signal {
	slices.SortFunc(signals, func(a, b signal) int { return cmp.Compare(b.rate, a.rate) })
	return signals[:min(n, len(signals))]
}

const recordSignalsSQL = `
INSERT INTO hot_signals (tenant_id, variant_id, source, rate, measured_at)
SELECT s.tenant_id, s.variant_id, $1, s.rate, clock_timestamp()
FROM unnest($2::uuid[], $3::text[], $4::double precision[]) AS s (tenant_id, variant_id, rate)
ON CONFLICT (tenant_id, variant_id, source) DO UPDATE
SET rate = excluded.rate, measured_at = excluded.measured_at`

// RecordOnce ends the window and writes its counts. Counts that can't be
// written are lost, and the next window replaces them.
func (s *Signals) RecordOnce(ctx context.Context) error {
	signals := s.endWindow()
	if len(signals) == 0 {
		return nil
	}
	tenants, variants, rates := make([][16]byte, len(signals)), make([]string, len(signals)), make([]float64, len(signals))
	for i, sig := range signals {
		tenants[i], variants[i], rates[i] = sig.TenantID, sig.VariantID, sig.rate
	}
	if _, err := s.db.Exec(ctx, recordSignalsSQL, s.source, tenants, variants, rates); err != nil {
		return fmt.Errorf("write the signals: %w", err)
	}
	return nil
}

// Run writes each window as it ends, until ctx ends.
func (s *Signals) Run(ctx context.Context) error {
	sleep.Every(ctx, window, func() {
		recording, cancel := context.WithTimeout(ctx, window)
		defer cancel()
		if err := s.RecordOnce(recording); err != nil && ctx.Err() == nil {
			s.log.WarnContext(ctx, "the signals of a window were not written", "error", err)
		}
	})
	return nil
}

// expireSQL skips rows that another transaction writes. A signal from the future
// was written before the clock was set back.
const expireSQL = `
WITH expired AS MATERIALIZED (
    SELECT tenant_id, variant_id, source
    FROM hot_signals
    WHERE measured_at NOT BETWEEN clock_timestamp() - $1::interval AND clock_timestamp()
    LIMIT $2
    FOR UPDATE SKIP LOCKED
)
DELETE FROM hot_signals s
USING expired
WHERE s.tenant_id = expired.tenant_id AND s.variant_id = expired.variant_id AND s.source = expired.source`

// QueueExpire adds to b what deletes old signals.
func QueueExpire(b *pgx.Batch) { b.Queue(expireSQL, retention, expireMax) }

// frequent counts the most frequent of many keys in bounded memory. It is the
// algorithm of Misra and Gries ("Finding repeated elements", 1982): a new key
// that finds the sketch full decrements every count.
//
// A count is never too high. It is too low by at most the total divided by the
// capacity: with a capacity of 1,024, every key with a thousandth of the total
// is present. Counting takes constant time on average, because the counts can
// be decremented only as often as each was incremented.
type frequent[K comparable] struct {
	capacity int
	counts   map[K]*int64
	total    int64 // all that was counted, exactly
}

func newFrequent[K comparable](capacity int) frequent[K] {
	return frequent[K]{capacity: capacity, counts: make(map[K]*int64, capacity)}
}

// add counts the key n times.
func (f *frequent[K]) add(key K, n int64) {
	f.total += n
	if count := f.counts[key]; count != nil {
		*count += n
		return
	}
	if len(f.counts) >= f.capacity {
		n = f.decrement(n)
		if n == 0 {
			return
		}
	}
	f.counts[key] = &n
}

// decrement subtracts the same amount from every count and from n, until one
// count is 0 and removed, or n is 0. It returns what is left of n.
func (f *frequent[K]) decrement(n int64) int64 {
	least := n
	for _, count := range f.counts {
		least = min(least, *count)
	}
	for key, count := range f.counts {
		*count -= least
		if *count == 0 {
			delete(f.counts, key)
		}
	}
	return n - least
}

// reset removes all counts and keeps the memory.
func (f *frequent[K]) reset() {
	clear(f.counts)
	f.total = 0
}
