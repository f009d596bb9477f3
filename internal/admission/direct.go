package admission

import (
	"context"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/lanes"
	"github.com/holdfast/holdfast/internal/queues"
	"github.com/holdfast/holdfast/internal/requestrows"
	"github.com/holdfast/holdfast/requests"
)

// Decider decides requests in the transaction that admits them, with the same
// step as the drains.
type Decider interface {
	// Queue adds to b, behind the statements that insert a group, the
	// statements that read the rows which its decision needs, and lock those
	// rows that are free.
	Queue(b *pgx.Batch, lane lanes.Lane, group []requestrows.Submission) queues.Decision
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

// besideOf returns what is done beside inserting the group, nil for nothing. It
// counts and spends for a metered group, and decides a group at the first
// attempt, if it can be decided directly.
func (in *Intake) besideOf(group []*waiter, submissions []requestrows.Submission, first bool) (beside, error) {
	switch {
	case in.config.Metered:
		return in.newMetering(group, submissions)
	case first && in.decidesDirectly(group):
		return &direct{decider: in.config.Decider, lane: group[0].lane, group: submissions}, nil
	}
	return nil, nil
}

// direct decides, in the transaction that admits a group, the requests that can
// be decided now. The round trip of the insert locks and reads, and a further
// one writes the decisions.
type direct struct {
	decider  Decider
	lane     lanes.Lane
	group    []requestrows.Submission
	decision queues.Decision
	decided  int
}

func (d *direct) queue(b *pgx.Batch) { d.decision = d.decider.Queue(b, d.lane, d.group) }

func (d *direct) decideTx(ctx context.Context, tx pgx.Tx, inserted []requests.Request) (requestrows.Decisions, error) {
	queued := queuedIn(d.lane, inserted, len(d.group))
	if len(queued) == 0 {
		return requestrows.Decisions{}, nil
	}
	b := &pgx.Batch{}
	views, err := d.decision.DecideTx(ctx, tx, b, queued)
	if err == nil && len(views) > 0 {
		err = tx.SendBatch(ctx, b).Close()
	}
	if err != nil {
		return requestrows.Decisions{}, fmt.Errorf("decide: %w", err)
	}
	d.decided = len(views)
	return requestrows.Decisions{Views: views}, nil
}

func (d *direct) committed(ctx context.Context, _ map[requestrows.Ref]requestrows.Result) {
	if d.decided > 0 {
		d.decision.Committed(ctx)
	}
}

// queuedIn returns the queued requests of a group, in the order of their
// sequence. It returns none if a request was not inserted, or was queued in
// another lane.
func queuedIn(lane lanes.Lane, inserted []requests.Request, group int) []requests.Request {
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
