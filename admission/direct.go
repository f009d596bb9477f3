package admission

import (
	"context"
	"fmt"
	"runtime/debug"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/lanes"
	"github.com/holdfast/holdfast/queues"
	"github.com/holdfast/holdfast/requests"
)

// Decider decides requests in the transaction that admits them, with the same
// step as the drains.
type Decider interface {
	// Queue adds to b, behind the statements that insert a group, the
	// statements that read the rows which its decision needs, and lock those
	// rows that are free.
	Queue(b *pgx.Batch, lane lanes.Lane, group []requests.Submission) queues.Decision
}

// decidesDirectly reports whether the intake tries to decide the group in the
// transaction that admits it: it has a Decider, it is not metered, and all
// callers of the group wait for the outcome. Callers that do not wait are
// answered sooner if their requests are queued, and a decision costs less in a
// larger group.
func (in *Intake) decidesDirectly(group []*waiter) bool {
	return in.config.Decider != nil && !in.config.Metered &&
		!slices.ContainsFunc(group, func(w *waiter) bool { return !w.submission.Waits })
}

// isOptimistic reports whether the first attempt at a group assumes more than
// the next ones do: that the group can be decided directly, or that all its
// requests are new.
func (in *Intake) isOptimistic(group []*waiter) bool {
	keyed := slices.ContainsFunc(group, func(w *waiter) bool {
		return w.submission.IdempotencyKey != "" || w.submission.RetryOf != uuid.Nil
	})
	return in.decidesDirectly(group) || !keyed && !in.config.Metered
}

// admitDirectly admits the group in a transaction that also decides the
// requests that can be decided now. One round trip inserts, locks and reads,
// one writes the decisions, and one commits.
func (in *Intake) admitDirectly(ctx context.Context, conn *pgxpool.Conn, lane lanes.Lane, insertion *requests.Insertion, submissions []requests.Submission) (admitted map[requests.Ref]requests.Result, wakes []lanes.Stream, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("decide: panic: %v\n%s", p, debug.Stack())
		}
	}()
	b := &pgx.Batch{}
	b.BeginTx(pgx.TxOptions{})
	insertion.Queue(b)
	decision := in.config.Decider.Queue(b, lane, submissions)
	begun := conn.SendBatch(ctx, b)
	tx := begun.Tx()
	defer func() { _ = tx.Rollback(ctx) }()
	if err := begun.Close(); err != nil {
		return nil, nil, err
	}
	if err := insertion.RecordRetriesTx(ctx, tx); err != nil {
		return nil, nil, err
	}
	decided, err := decide(ctx, tx, decision, queuedIn(lane, insertion, len(submissions)))
	if err != nil {
		return nil, nil, fmt.Errorf("decide: %w", err)
	}
	admitted, wakes, err = outcome(ctx, tx, insertion, decided)
	if err == nil {
		err = tx.Commit(ctx)
	}
	if err == nil && len(decided) > 0 {
		decision.Committed(ctx)
	}
	return admitted, wakes, err
}

// decide decides the requests that can be decided now, and returns them.
func decide(ctx context.Context, tx pgx.Tx, decision queues.Decision, queued []requests.Request) ([]requests.View, error) {
	if len(queued) == 0 {
		return nil, nil
	}
	b := &pgx.Batch{}
	decided, err := decision.DecideTx(ctx, tx, b, queued)
	if err != nil || len(decided) == 0 {
		return nil, err
	}
	return decided, tx.SendBatch(ctx, b).Close()
}

// queuedIn returns the queued requests of the group, in the order of their
// sequence. It returns none if a request was not inserted, or was queued in
// another lane.
func queuedIn(lane lanes.Lane, insertion *requests.Insertion, group int) []requests.Request {
	inserted := insertion.Inserted()
	if len(inserted) < group {
		return nil
	}
	queued := make([]requests.Request, 0, len(inserted))
	for _, r := range inserted {
		switch {
		case r.Status != requests.Queued:
		case r.Lane != lane:
			return nil
		default:
			queued = append(queued, r)
		}
	}
	slices.SortFunc(queued, func(a, b requests.Request) int { return int(a.Sequence - b.Sequence) })
	return queued
}
