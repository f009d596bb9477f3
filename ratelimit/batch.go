package ratelimit

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/telemetry"
)

// batchMax is how many items a batch has at most.
const batchMax = 10_000

// Batch is the batch rate limiter: it counts the items of one batch in the
// caller's transaction. It is for batches of which nearly all items are
// counted, and for callers that learn only in the same round trip which items
// count.
//
// It takes first and gives back afterwards. Queue adds to the caller's batch a
// statement that takes the whole amount of each rate, even beyond its limit.
// DecideTx then decides the items in their order, under the locks, and gives
// back the amounts of items that are refused or skipped. That takes one round
// trip at most, and none if all items are counted.
//
// Items are decided first come, first served. A refused item takes no capacity
// from the items behind it. Rates are locked in the order of (tenant, scope)
// until the transaction ends. A rollback undoes all counts.
type Batch struct {
	items    []Item
	counters counters
}

// NewBatch makes a batch of at most 10,000 items. The error for more is an
// [*InvalidError].
func NewBatch(items []Item) (*Batch, error) {
	if len(items) > batchMax {
		return nil, &InvalidError{Field: "items", Message: fmt.Sprintf("must be at most %d", batchMax)}
	}
	return &Batch{items: items, counters: newCounters(items)}, nil
}

// Queue adds to b what takes the whole amount of the batch. It comes before
// DecideTx, in the same transaction.
func (l *Batch) Queue(b *pgx.Batch) { l.counters.queueTake(b) }

// DecideOpts are what a caller decides together with the rates of its items.
// The zero value counts every item.
type DecideOpts struct {
	// Skip reports that item i is counted nowhere. nil: no item is skipped.
	Skip func(i int) bool
	// Refuse returns why the caller refuses item i, or nil. fits reports
	// whether its rates have room for it, so that it will be counted unless it
	// is refused. The calls are in the order of the items. nil: none is refused.
	Refuse func(i int, fits bool) error
	// Queue adds to b what the caller writes, in the round trip of the batch,
	// when all items are decided. nil: nothing.
	Queue func(b *pgx.Batch)
}

// DecideTx decides the items. The results are in their order. opts may be nil.
// An error is the database's, and the transaction must be rolled back.
//
// It is correct at every isolation level. Above READ COMMITTED a lost race is a
// serialization failure (SQLSTATE 40001) of the statement that Queue added.
func (l *Batch) DecideTx(ctx context.Context, tx pgx.Tx, opts *DecideOpts) (_ []Result, err error) {
	ctx, done := telemetry.Verb(ctx, "ratelimit.decide")
	defer func() { done("", err) }()
	if opts == nil {
		opts = &DecideOpts{}
	}
	results := make([]Result, len(l.items))
	for i := range l.items {
		if opts.Skip == nil || !opts.Skip(i) {
			results[i] = l.decide(i, opts.Refuse)
		}
	}
	b := &pgx.Batch{}
	if opts.Queue != nil {
		opts.Queue(b)
	}
	l.counters.queueSettle(b)
	if b.Len() > 0 {
		if err := tx.SendBatch(ctx, b).Close(); err != nil {
			return nil, fmt.Errorf("settle a batch of %d items: %w", len(l.items), err)
		}
	}
	return results, nil
}

// decide counts one item, or returns why not. The caller's refusal takes
// precedence over a rate's.
func (l *Batch) decide(i int, refuse func(i int, fits bool) error) Result {
	cells := l.items[i].cells
	exceeded := l.counters.count(i, cells)
	var refused error
	if refuse != nil {
		refused = refuse(i, exceeded < 0)
	}
	if refused != nil && exceeded < 0 {
		l.counters.uncount(i, cells, len(cells))
	}
	result := Result{refused, l.counters.states(i, cells, refused == nil && exceeded < 0)}
	if refused == nil && exceeded >= 0 {
		result.Err = &ExceededError{cells[exceeded].Rate, result.States[exceeded]}
	}
	return result
}

// RateRef names a rate.
type RateRef struct {
	TenantID uuid.UUID
	Scope    string
}

// Item is one member of a [Batch]: the rates that it is counted in. It is made
// by [NewItem], which does all that can be done for one item alone.
type Item struct {
	tenant uuid.UUID
	cells  []cell
}

// NewItem makes an item that is counted in at most 4 rates. The error
// for invalid input is an [*InvalidError].
func NewItem(tenantID uuid.UUID, rates []Rate) (Item, error) {
	if len(rates) > ratesMax {
		return Item{}, &InvalidError{Field: "rates", Message: fmt.Sprintf("must be at most %d", ratesMax)}
	}
	if tenantID == uuid.Nil {
		return Item{}, &InvalidError{Field: "tenant_id", Message: "must not be zero"}
	}
	item := Item{tenant: tenantID, cells: make([]cell, len(rates))}
	for i, r := range rates {
		if err := r.validate(); err != nil {
			return Item{}, err
		}
		item.cells[i] = newCell(r)
	}
	return item, nil
}

// Result is what became of an item.
type Result struct {
	// Err is nil if the item was counted or skipped. Otherwise nothing was
	// counted for it: the caller's refusal, or else an [*ExceededError].
	Err error
	// States are those of the item's rates right after, in their order; nil if
	// the item was skipped.
	States []State
}
