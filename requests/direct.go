package requests

import (
	"context"
	"fmt"
	"runtime/debug"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Decider decides requests in the transaction that admits them, by the step that the lanes decide by.
type Decider interface {
	// Queue adds to b, behind the statements that insert a group, what reads all that its decision needs, and locks what is
	// free of it.
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

// decidesDirectly reports whether the intake tries to decide the group as it admits it: it has a Decider, it meters
// nothing, and all callers of the group wait for the outcome. Others are answered sooner, and cost less, if their
// requests are queued and decided in larger groups.
func (in *Intake) decidesDirectly(group []*member) bool {
	return in.config.Decider != nil && !in.config.Metered &&
		!slices.ContainsFunc(group, func(m *member) bool { return !m.submission.Waits })
}

// isHopeful reports whether the first attempt at a group does more or assumes more than the next ones: that it can be
// decided, or that all of it is new.
func (in *Intake) isHopeful(group []*member) bool {
	keyed := slices.ContainsFunc(group, func(m *member) bool { return m.submission.IdempotencyKey != "" })
	return in.decidesDirectly(group) || !keyed && !in.config.Metered
}

// admitDirectly admits the group and decides it in the same transaction, as far as it can be decided now: one round trip
// inserts, locks and reads, one writes what was decided, one commits.
func (in *Intake) admitDirectly(ctx context.Context, conn *pgxpool.Conn, lane string, e *entry) (admitted map[Ref]admission, wakes []Wake, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("decide: panic: %v\n%s", p, debug.Stack())
		}
	}()
	b := &pgx.Batch{}
	b.BeginTx(pgx.TxOptions{})
	e.queue(b)
	decision := in.config.Decider.Queue(b, lane, e.group)
	begun := conn.SendBatch(ctx, b)
	tx := begun.Tx()
	defer func() { _ = tx.Rollback(ctx) }()
	if err := begun.Close(); err != nil {
		return nil, nil, err
	}
	if err := e.decide(ctx, tx, decision, lane); err != nil {
		return nil, nil, fmt.Errorf("decide: %w", err)
	}
	admitted, wakes, err = e.outcome(ctx, tx, nil)
	if err == nil {
		err = tx.Commit(ctx)
	}
	if err == nil && len(e.views) > 0 {
		decision.Committed(ctx)
	}
	return admitted, wakes, err
}

// decide decides those of the group that it can.
func (e *entry) decide(ctx context.Context, tx pgx.Tx, decision Decision, lane string) error {
	queued := e.queued(lane)
	if len(queued) == 0 {
		return nil
	}
	b := &pgx.Batch{}
	views, err := decision.DecideTx(ctx, tx, b, queued)
	if err != nil || len(views) == 0 {
		return err
	}
	e.views = make(map[Ref]View, len(views))
	for _, v := range views {
		e.views[v.Ref()] = v
	}
	return tx.SendBatch(ctx, b).Close()
}

// queued returns the group as it was queued in the lane, in the order of its sequence; none of it if some was not inserted,
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
