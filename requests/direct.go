package requests

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Decider decides requests in the transaction that admits them, by the step that the lanes decide by.
type Decider interface {
	// Queue adds to b, behind the statements that insert a group, what locks and reads all that its decision needs. None of
	// it waits for a lock.
	Queue(b *pgx.Batch, lane string, group []Submission) Decision
}

// Decision is the decision of one group.
type Decision interface {
	// DecideTx decides the requests, all of the group, which tx has inserted into one lane, and adds to b what writes it. It
	// returns those that were decided, as they are once b was sent. The others stay queued: something that waits comes
	// before them, the lane is held up, or another transaction has what they ask for locked.
	//
	// The transaction must be READ COMMITTED, which the admission has checked.
	DecideTx(ctx context.Context, tx pgx.Tx, b *pgx.Batch, inserted []Request) ([]View, error)
	// Committed counts what was decided, once the transaction is committed.
	Committed(ctx context.Context)
}

// decidesDirectly reports whether the group is decided as it is admitted, if nothing stands in the way: all of its callers
// wait for the outcome. Others are answered sooner, and cost less, if their requests are queued and decided in larger groups.
func (in *Intake) decidesDirectly(group []*member) bool {
	return in.config.Decider != nil && !in.config.Metered &&
		!slices.ContainsFunc(group, func(m *member) bool { return !m.submission.Waits || m.lane != group[0].lane })
}

// admitDirectly admits the group and decides it in the same transaction, as far as it can be decided now.
func (in *Intake) admitDirectly(ctx context.Context, conn *pgxpool.Conn, lane string, group []Submission) (admitted map[Ref]admission, wakes []Wake, err error) {
	e := newEntry(group)
	var decision Decision
	decided := 0
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		b := &pgx.Batch{}
		e.queue(b)
		decision = in.config.Decider.Queue(b, lane, group)
		if err := tx.SendBatch(ctx, b).Close(); err != nil {
			return err
		}
		if queued := e.queued(lane); len(queued) > 0 {
			b := &pgx.Batch{}
			views, err := decision.DecideTx(ctx, tx, b, queued)
			if err != nil {
				return fmt.Errorf("decide: %w", err)
			}
			if decided = len(views); decided > 0 {
				if err := tx.SendBatch(ctx, b).Close(); err != nil {
					return fmt.Errorf("decide: %w", err)
				}
				e.decided(views)
			}
		}
		admitted, wakes, err = e.outcome(ctx, tx, nil)
		return err
	})
	if err == nil && decided > 0 {
		decision.Committed(ctx)
	}
	return admitted, wakes, err
}

// queued returns the group as it was queued in the lane, in the order of its sequence; nobody if some of it was not inserted,
// or into another lane.
func (e *entry) queued(lane string) []Request {
	if len(e.inserted) < len(e.group) {
		return nil
	}
	queued := make([]Request, 0, len(e.inserted))
	for _, r := range e.inserted {
		switch {
		case r.Status != Queued:
		case r.Lane != lane:
			return nil
		default:
			queued = append(queued, e.group[e.places[r.Ref()]].request(r))
		}
	}
	slices.SortFunc(queued, func(a, b Request) int { return int(a.Sequence - b.Sequence) })
	return queued
}

// decided replaces inserted requests by what became of them.
func (e *entry) decided(views []View) {
	e.views = make(map[Ref]*View, len(views))
	for i := range views {
		e.views[views[i].Ref()] = &views[i]
	}
}
