package ratelimit

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/telemetry"
)

// BatchMax is how many items a batch has at most.
const BatchMax = 10_000

// Batch is the batch rate limiter: it counts the items of one batch in the
// caller's transaction. It is for batches of which nearly all items are
// counted, and for callers that learn only in the same round trip which items
// count.
//
// It takes first and gives back afterwards. Queue adds to the caller's batch a
// statement that takes the whole amount of each rate, even beyond its limit.
// DecideTx then decides the items in their order, under the locks, and gives
// back the amounts of items that are refused or skipped. That takes two round
// trips at most, and none if all items are counted.
//
// Items are decided first come, first served. A refused item takes no capacity
// from the items behind it. Rates are locked in the order of (tenant, scope)
// until the transaction ends. A rollback undoes all counts.
type Batch struct {
	items    []Item
	counters counters
}

// Redeemer redeems the tokens of a batch's items, with the items' decisions.
// [github.com/holdfast/holdfast/metered.Redemptions] is one. The statements
// that it queues to take the tokens come before [Batch.Queue], because tokens
// are locked before rates.
type Redeemer interface {
	// LookUpTx reads what Redeem needs to know of the items that need reports;
	// one round trip at most.
	LookUpTx(ctx context.Context, tx pgx.Tx, need func(i int) bool) error
	// Redeem returns why the token of item i cannot be redeemed, or nil. If it
	// can and commit is set, it is redeemed. Calls come in the order of the
	// items.
	Redeem(i int, commit bool) error
	// QueueSettle adds to b what writes the outcome of all calls of Redeem.
	QueueSettle(b *pgx.Batch)
}

// NewBatch makes a batch of at most BatchMax items. The error for more is an
// [*InvalidError].
func NewBatch(items []Item) (*Batch, error) {
	if len(items) > BatchMax {
		return nil, &InvalidError{Field: "items", Message: fmt.Sprintf("must be at most %d", BatchMax)}
	}
	return &Batch{items: items, counters: newCounters(items)}, nil
}

// Queue adds to b what takes the whole amount of the batch. It comes before
// DecideTx, in the same transaction.
func (l *Batch) Queue(b *pgx.Batch) { l.counters.queueTake(b) }

// DecideTx decides the items, each in the mode that mode returns for its index.
// The results are in the order of the items. tokens may be nil if no item is
// CountAndRedeem. An error is the database's, and the transaction must be
// rolled back.
//
// It is correct at every isolation level. Above READ COMMITTED a lost race is a
// serialization failure (SQLSTATE 40001) of the statement that Queue added.
func (l *Batch) DecideTx(ctx context.Context, tx pgx.Tx, mode func(i int) Mode, tokens Redeemer) (_ []Result, err error) {
	ctx, done := telemetry.Verb(ctx, "ratelimit.decide")
	defer func() { done("", err) }()
	modes := make([]Mode, len(l.items))
	for i := range modes {
		modes[i] = mode(i)
	}
	if tokens != nil {
		if err := tokens.LookUpTx(ctx, tx, func(i int) bool { return modes[i] == CountAndRedeem }); err != nil {
			return nil, err
		}
	}
	results := make([]Result, len(l.items))
	for i := range l.items {
		if modes[i] != Skip {
			results[i] = l.decide(i, modes[i], tokens)
		}
	}
	b := &pgx.Batch{}
	if tokens != nil {
		tokens.QueueSettle(b)
	}
	l.counters.queueSettle(b)
	if b.Len() > 0 {
		if err := tx.SendBatch(ctx, b).Close(); err != nil {
			return nil, fmt.Errorf("settle a batch of %d items: %w", len(l.items), err)
		}
	}
	return results, nil
}

// decide counts one item, or returns why not. A token's refusal takes
// precedence over a rate's.
func (l *Batch) decide(i int, mode Mode, tokens Redeemer) Result {
	cells := l.items[i].cells
	exceeded := l.counters.count(i, cells)
	var refused error
	if mode == CountAndRedeem {
		refused = tokens.Redeem(i, exceeded < 0)
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

// NewItem makes an item that is counted in at most RatesMax rates. The error
// for invalid input is an [*InvalidError].
func NewItem(tenantID uuid.UUID, rates []Rate) (Item, error) {
	if len(rates) > RatesMax {
		return Item{}, &InvalidError{Field: "rates", Message: fmt.Sprintf("must be at most %d", RatesMax)}
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

// Mode is what a batch does with an item.
type Mode uint8

// The modes.
const (
	// Skip counts the item nowhere.
	Skip Mode = iota
	// Count counts the item in its rates.
	Count
	// CountAndRedeem counts the item and redeems its token; both or neither.
	CountAndRedeem
)

// Result is what became of an item.
type Result struct {
	// Err is nil if the item was counted or skipped. Otherwise nothing was
	// counted or redeemed for it: the error of the [Redeemer], or else an
	// [*ExceededError].
	Err error
	// States are those of the item's rates right after, in their order; nil if
	// the item was skipped.
	States []State
}
