package sweeper

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/checkouts"
	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/internal/lanes"
	"github.com/holdfast/holdfast/internal/purge"
	"github.com/holdfast/holdfast/internal/requestrows"
	"github.com/holdfast/holdfast/internal/reservationrows"
	"github.com/holdfast/holdfast/internal/tenants"
	"github.com/holdfast/holdfast/metered"
	"github.com/holdfast/holdfast/ratelimit"
)

// PurgeReport is what one purge deleted.
type PurgeReport struct {
	Requests        int64 `json:"requests"`
	Reservations    int64 `json:"reservations"` // and allotments
	IdempotencyKeys int64 `json:"idempotency_keys"`
	AuditRows       int64 `json:"audit_rows"`
	Checkouts       int64 `json:"checkouts"`
	// More means that the purge of a table reached the bound, so that rows may
	// be left.
	More bool `json:"more"`

	// What follows are rows of package metered.

	Tokens        int64 `json:"expiring_tokens,omitempty"`
	LedgerEntries int64 `json:"budget_ledger,omitempty"`
	Scopes        int64 `json:"budget_scopes,omitempty"`
	Rates         int64 `json:"budget_rates,omitempty"`
	CommandKeys   int64 `json:"command_keys,omitempty"`
}

// reservationGrace is how much longer than its request an ended hold is kept,
// so that no request outlives its hold. The audit record is kept at least that
// long, so that no hold outlives the record of its ending.
const reservationGrace = 24 * time.Hour

// Unfinished reports whether the purge ended at a bound and deleted something,
// so that the next one should begin at once.
func (r *PurgeReport) Unfinished() bool { return r.More && *r != PurgeReport{More: true} }

// PurgeOnce deletes what is finished and older than the retention: requests of
// the given streams, ended checkouts, ended holds of variants, kept answers,
// and, if the record is not kept for ever, audit rows that every subscription
// was delivered. If commands are metered, it also deletes their expired rows.
// It purges each table in batches up to the bound, and the streams of requests
// in parallel with the other tables, so it uses two connections.
//
// A purge that reaches its bound, or the deadline of ctx after it has deleted
// something, reports More without an error. If it made progress, the next purge
// should begin at once.
func (s *Sweeper) PurgeOnce(ctx context.Context, streams []lanes.Stream) (PurgeReport, error) {
	if err := purge.Mark(ctx, s.db, s.config.RequestRetention); err != nil {
		return PurgeReport{}, fmt.Errorf("purge: %w", err)
	}
	var ofRequests, others PurgeReport
	var purging errgroup.Group // without a context: an error of one part does not stop the other
	purging.Go(func() error { return s.purgeStreams(ctx, streams, &ofRequests) })
	err := errors.Join(s.purgeOthers(ctx, &others), purging.Wait())
	report := others
	report.Requests, report.More = ofRequests.Requests, ofRequests.More || others.More
	if err == nil {
		return report, nil
	}
	if isDeadline(ctx) && report != (PurgeReport{More: report.More}) {
		report.More = true
		return report, nil
	}
	return report, fmt.Errorf("purge: %w", err)
}

// purgeStreams purges the streams one after the other.
func (s *Sweeper) purgeStreams(ctx context.Context, streams []lanes.Stream, report *PurgeReport) error {
	for _, stream := range streams {
		at, _ := s.streams.LoadOrStore(stream, &purge.Walk[int64]{})
		deleted, bounded, err := at.(*purge.Walk[int64]).On(s.config.PurgeMax, func(after int64) (int64, int64, bool, error) {
			p, err := requestrows.PurgeStream(ctx, s.db, stream, s.config.RequestRetention, after, purge.Batch)
			return p.Last, p.Deleted, p.More, err
		})
		report.Requests += deleted
		report.More = report.More || bounded
		if err != nil {
			return err
		}
	}
	return nil
}

// purged is a table that is purged in the order of age.
type purged struct {
	// count is where the report has the number of rows deleted.
	count *int64
	// batch deletes up to purge.Batch rows, and returns how many.
	batch func() (int64, error)
}

// purgeOthers purges the tables that are not requests.
func (s *Sweeper) purgeOthers(ctx context.Context, report *PurgeReport) error {
	retention := s.config.RequestRetention
	ended := reservationrows.Purge{
		Kind: inventory.Kind, Retention: retention + reservationGrace,
		Committed: true, // they have left the stock
	}
	tables := []purged{
		// before its holds, which it lists
		{&report.Checkouts, func() (int64, error) {
			purged, err := checkouts.PurgeEnded(ctx, s.db, retention, purge.Batch)
			report.IdempotencyKeys += purged.Keys
			return purged.Checkouts, err
		}},
		{&report.Reservations, func() (int64, error) {
			purged, err := reservationrows.PurgeEnded(ctx, s.db, ended, purge.Batch)
			return purged.Count, err
		}},
		{&report.Reservations, func() (int64, error) { return inventory.PurgeAllotments(ctx, s.db, ended.Retention, purge.Batch) }},
		{&report.IdempotencyKeys, func() (int64, error) { return tenants.PurgeKeys(ctx, s.db, retention, purge.Batch) }},
	}
	if s.config.AuditRetention > 0 {
		tables = append(tables, purged{&report.AuditRows, func() (int64, error) {
			return audit.Prune(ctx, s.db, s.config.AuditRetention, purge.Batch)
		}})
	}
	for _, table := range tables {
		deleted, bounded, err := purge.InBatches(s.config.PurgeMax, func() (int64, bool, error) {
			n, err := table.batch()
			return n, n >= purge.Batch, err
		})
		*table.count += deleted
		report.More = report.More || bounded
		if err != nil {
			return err
		}
	}
	if s.metered != nil {
		return s.purgeMetered(ctx, report)
	}
	return nil
}

// Bounds of the longest window of which a purge deletes nothing.
const (
	minWindow = 24 * time.Hour
	windowMax = 400 * 24 * time.Hour
)

// newMetered makes what purges the tables of package metered. It takes the
// retention as the longest window. With the default, it would delete entries
// that a ledger with longer windows still counts.
func newMetered(db *pgxpool.Pool, retention time.Duration) (*metered.Commands, error) {
	return metered.New(db, metered.Config{WindowMax: min(max(retention, minWindow), windowMax)})
}

// purgeMetered purges the tables of metered commands.
func (s *Sweeper) purgeMetered(ctx context.Context, report *PurgeReport) error {
	purged, err := s.metered.Purge(ctx, s.config.MeteredRetention, s.config.PurgeMax)
	report.More = report.More || purged.More
	report.Tokens, report.LedgerEntries, report.Scopes, report.CommandKeys = purged.Tokens, purged.LedgerEntries, purged.Scopes, purged.CommandKeys
	if err != nil {
		return err
	}
	report.Rates, _, err = s.rates.On(s.config.PurgeMax, func(after ratelimit.RateRef) (ratelimit.RateRef, int64, bool, error) {
		return ratelimit.Purge(ctx, s.db, after, purge.Batch)
	})
	return err
}
