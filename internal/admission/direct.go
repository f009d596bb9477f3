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
	// Queue adds to b the statements that read the rows which the decision of
	// a group needs, and lock those rows that are free.
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

// insertionOf returns how the submissions of a group are inserted, and what is
// done beside it, nil for nothing. It counts and spends for a metered group, and
// decides a group at the first attempt, if it can be decided directly.
func (in *Intake) insertionOf(group []*waiter, submissions []requestrows.Submission, first bool) (inserter, beside, error) {
	switch {
	case in.config.Metered:
		m, err := in.newMetering(group, submissions)
		if err != nil {
			return nil, nil, err
		}
		return requestrows.Insertion{Group: submissions, Queue: m.queue, Decide: m.decideTx}, m, nil
	case first && in.decidesDirectly(group):
		d := &direct{decider: in.config.Decider, lane: group[0].lane, group: submissions}
		return requestrows.Direct{Group: submissions, Queue: d.queue, Decide: d.decideTx}, d, nil
	}
	return requestrows.Insertion{Group: submissions, AssumeNew: first}, nil, nil
}

// direct decides, in the transaction that admits a group, the requests that can
// be decided now. The first round trip locks and reads, and the last one writes
// the requests as they were decided.
type direct struct {
	decider  Decider
	lane     lanes.Lane
	group    []requestrows.Submission
	decision queues.Decision
	decided  int
}

func (d *direct) queue(b *pgx.Batch) { d.decision = d.decider.Queue(b, d.lane, d.group) }

func (d *direct) decideTx(ctx context.Context, tx pgx.Tx, b *pgx.Batch, group []requests.Request) ([]requests.View, error) {
	views, err := d.decision.DecideTx(ctx, tx, b, group)
	if err != nil {
		return nil, fmt.Errorf("decide: %w", err)
	}
	d.decided = len(views)
	return views, nil
}

func (d *direct) committed(ctx context.Context, _ map[requestrows.Ref]requestrows.Result) {
	if d.decided > 0 {
		d.decision.Committed(ctx)
	}
}
