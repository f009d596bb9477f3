package queues

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/lanes"
	"github.com/holdfast/holdfast/internal/requestrows"
)

// batchSize is the adaptive batch size of each slot: how many requests the next
// claim takes. It is a full batch unless a batch of the slot has failed lately.
//
// A batch that fails on data or runs out of time halves the size. Each batch
// that is decided increases it by a quarter. The decrease is that of AIMD
// (D. Chiu and R. Jain, "Analysis of the increase and decrease algorithms",
// 1989); the increase is proportional too, and slow, because several drains may
// share a slot: one that did not claim the bad row proves nothing about it.
//
// So a row that can't be decided is soon claimed alone, several such rows in
// sequence cost little more than the first one, and a database that is too slow
// for a full batch still decides smaller ones. It is safe for concurrent use.
type batchSize struct {
	mu      sync.Mutex
	reduced map[int16]int // by slot, where it is less than a full batch
}

// next returns how many requests to claim next at the slot, at most full.
func (s *batchSize) next(slot int16, full int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n, ok := s.reduced[slot]; ok {
		return n
	}
	return full
}

// decrease records that a batch of n requests, at least 2, could not be decided
// together.
func (s *batchSize) decrease(slot int16, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reduced == nil {
		s.reduced = make(map[int16]int)
	}
	s.reduced[slot] = n / 2
}

// increase records that a claim of up to n requests was decided.
func (s *batchSize) increase(slot int16, n, full int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	size, ok := s.reduced[slot]
	if !ok || n > size { // the claim began before the last decrease
		return
	}
	size += size/4 + 1
	if size >= full {
		delete(s.reduced, slot)
		return
	}
	s.reduced[slot] = size
}

// errCapped means that the lane has a rate cap which has not granted the
// requests that the drain would claim.
var errCapped = errors.New("queues: the lane has a rate cap")

// withinCap drains a slot within the lane's rate cap. It takes tokens for up to
// limit requests from the lane's bucket, which fills at the cap and holds one
// second of it, and returns the tokens that the drain did not use. It takes and
// returns them in separate transactions, so that no drain waits for another
// drain that waits for a lock.
func (d *Drain) withinCap(ctx context.Context, slot int16, limit int, skip []requestrows.Skip) (report Report, err error) {
	granted, capped := limit, false // for a lane whose cap was just removed
	taking, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	b := &pgx.Batch{}
	b.Queue(asyncCommitSQL)
	lanes.QueueTakeTokens(b, d.lane, limit, func(tokens int) { granted, capped = tokens, true })
	if err := d.db.SendBatch(taking, b).Close(); err != nil {
		return Report{}, fmt.Errorf("take from the rate cap of lane %s: %w", d.lane, err)
	}
	granted = min(granted, limit)
	if granted <= 0 {
		return Report{Throttled: true}, nil
	}
	report, err = d.drainUpTo(ctx, slot, granted, capped, skip)
	if errors.Is(err, errCapped) { // there is a cap again
		return Report{More: true}, nil
	}
	report.Throttled = report.More && granted < limit
	if capped {
		d.returnTokens(ctx, granted-report.Claimed)
	}
	return report, err
}

func (d *Drain) returnTokens(ctx context.Context, n int) {
	if n <= 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), requeueTimeout)
	defer cancel()
	b := &pgx.Batch{}
	b.Queue(asyncCommitSQL)
	lanes.QueueReturnTokens(b, d.lane, n)
	if err := d.db.SendBatch(ctx, b).Close(); err != nil {
		d.log.WarnContext(ctx, "unused tokens of the rate cap were not returned", "requests", n, "error", err)
	}
}
