package sweeper

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/reservationrows"
	"github.com/holdfast/holdfast/inventory"
	"github.com/holdfast/holdfast/requests"
	"github.com/holdfast/holdfast/tenants"
)

// PurgeReport is what one purge deleted.
type PurgeReport struct {
	Requests        int64 `json:"requests"`
	Reservations    int64 `json:"reservations"`
	IdempotencyKeys int64 `json:"idempotency_keys"`
	AuditRows       int64 `json:"audit_rows"`
	// More means that a table was worked up to the bound, so that rows may be left.
	More bool `json:"more"`
	PurgedMetered
}

// purgeBatch is how many rows one transaction of a purge looks at.
const purgeBatch = 2000

// reservationGrace is how much longer than its request an ended hold is kept, so that no request outlives its hold. The
// record is kept no shorter than that, so that no hold outlives the record of its ending.
const reservationGrace = 24 * time.Hour

// Unfinished reports that the purge ended at a bound and deleted something, so that the next one should begin at once.
func (r *PurgeReport) Unfinished() bool { return r.More && *r != PurgeReport{More: true} }

// PurgeOnce deletes what is finished and older than the retention: requests of the given streams, ended holds of
// variants, kept answers, and, if the record is not kept for ever, audit rows that every subscription was given; where
// commands are metered, also what has expired of them. Each table is worked in batches up to the bound, the streams of
// requests beside all the other tables, so it uses two connections.
//
// A purge that reaches its bound, or the deadline of ctx after it has deleted something, reports More and is no error. If
// it made progress, the next purge should begin at once.
func (s *Sweeper) PurgeOnce(ctx context.Context, streams []requests.Wake) (PurgeReport, error) {
	var ofRequests, others PurgeReport
	var purging errgroup.Group // without a context of its own: what one side fails on does not stop the other
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
func (s *Sweeper) purgeStreams(ctx context.Context, streams []requests.Wake, report *PurgeReport) error {
	for _, stream := range streams {
		deleted, err := s.purgeStream(ctx, stream, &report.More)
		report.Requests += deleted
		if err != nil {
			return err
		}
	}
	return nil
}

// purgeOthers purges the tables that are not requests.
func (s *Sweeper) purgeOthers(ctx context.Context, report *PurgeReport) (err error) {
	more := &report.More
	report.Reservations, err = s.inBatches(more, func() (int64, error) {
		purged, err := reservationrows.PurgeEnded(ctx, s.db, reservationrows.Purge{
			Kind: inventory.Kind, Retention: s.config.RequestRetention + reservationGrace,
			Committed: true, // they have left the stock
		}, purgeBatch)
		return purged.Count, err
	})
	if err != nil {
		return err
	}
	report.IdempotencyKeys, err = s.inBatches(more, func() (int64, error) {
		return tenants.PurgeKeys(ctx, s.db, s.config.RequestRetention, purgeBatch)
	})
	if err != nil {
		return err
	}
	if s.config.AuditRetention > 0 {
		report.AuditRows, err = s.inBatches(more, func() (int64, error) {
			return audit.Prune(ctx, s.db, s.config.AuditRetention, purgeBatch)
		})
		if err != nil {
			return err
		}
	}
	if s.metered != nil {
		if err := s.purgeMetered(ctx, &report.PurgedMetered, more); err != nil {
			return err
		}
	}
	return nil
}

func (s *Sweeper) purgeStream(ctx context.Context, stream requests.Wake, more *bool) (deleted int64, err error) {
	var after int64
	for looked := 0; looked < s.config.PurgeMax; looked += purgeBatch {
		p, err := requests.PurgeStream(ctx, s.db, stream, s.config.RequestRetention, after, purgeBatch)
		if err != nil {
			return deleted, err
		}
		deleted += p.Deleted
		after = p.Last
		if !p.More {
			return deleted, nil
		}
	}
	*more = true
	return deleted, nil
}

// inBatches repeats a purge of one batch until it finds less than a full one, or the bound is reached, which it notes in more.
func (s *Sweeper) inBatches(more *bool, purge func() (int64, error)) (total int64, err error) {
	for total < int64(s.config.PurgeMax) {
		n, err := purge()
		total += n
		if err != nil || n < purgeBatch {
			return total, err
		}
	}
	*more = true
	return total, nil
}
