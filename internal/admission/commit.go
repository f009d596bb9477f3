package admission

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/internal/groupcommit"
	"github.com/holdfast/holdfast/internal/pg"
	"github.com/holdfast/holdfast/internal/requestrows"
	"github.com/holdfast/holdfast/internal/sleep"
	"github.com/holdfast/holdfast/internal/telemetry"
	"github.com/holdfast/holdfast/requests"
)

// attemptsMax is how many times a group's transaction is tried at most.
const attemptsMax = 3

// commitOrBisect admits the group. It bisects the parts that waited too long for
// a row with the key of one of their members. A caller that still waits when it
// is the only one of its part is refused, and its key is remembered for a while,
// so that it delays no other group.
func (in *Intake) commitOrBisect(ctx context.Context, group []*waiter) {
	for _, locked := range in.commit(ctx, group) {
		in.engine.Bisect(ctx, in.config.CommitTimeout, locked, in.commit)
	}
}

// commit admits the group, and the parts into which it is split, within
// CommitTimeout. It returns the parts that waited too long for a row with the
// key of one of their members; each has at least two members.
func (in *Intake) commit(ctx context.Context, group []*waiter) (locked [][]*waiter) {
	ctx, cancel := context.WithTimeout(ctx, in.config.CommitTimeout)
	defer cancel()
	groupcommit.Split(group, func(part []*waiter) [][]*waiter {
		parts, waiting := in.commitPart(ctx, part)
		if waiting != nil {
			locked = append(locked, waiting)
		}
		return parts
	})
	return locked
}

// commitPart admits a part of a group in one transaction, or returns the parts
// into which it is split. A part that fails on data is halved, until only the
// bad member fails. A part that waits for a key is returned as waiting.
//
// A commit with an unknown outcome is repeated. The repeated insert conflicts
// with the rows of the first attempt: it waits for that attempt to end, and the
// rows are read back. If this fails too, the outcome stays unknown.
func (in *Intake) commitPart(ctx context.Context, group []*waiter) (parts [][]*waiter, waiting []*waiter) {
	var admitted map[requestrows.Ref]requestrows.Result
	var blocked *blockedError
	var err error
	for try := 1; ; try++ {
		first := try == 1 && !slices.ContainsFunc(group, func(w *waiter) bool { return w.unknown != nil }) // else the rows may exist
		group, admitted, err = in.admit(ctx, group, first)
		if len(group) == 0 {
			return nil, nil
		}
		waits := pg.IsLockTimeout(err) && group[0].unknown != nil // for the group's earlier attempt, which has not ended
		err = recordUnknown(group, err)
		repeat := try == 1 && in.isOptimistic(group) || pg.IsRetryable(err) || pg.IsOutage(err)
		locked := isKeyLocked(err) && (try != 1 || !in.decidesDirectly(group)) // a direct decision hardly waits for a key
		if err == nil || locked || errors.As(err, &blocked) || !repeat || ctx.Err() != nil || try >= attemptsMax && !waits {
			break
		}
		if waits {
			_ = sleep.For(ctx, ownLockWait) // or until ctx ends
		}
	}
	switch {
	case err == nil:
		observe(ctx, group, admitted)
		for _, w := range group {
			a := admitted[w.submission.Ref()]
			in.answer(w, a.View, a.Err)
		}
	case blocked != nil:
		return in.refuseBlocked(ctx, group, blocked), nil
	case len(group) > 1 && pg.IsData(err):
		return groupcommit.Halves(group), nil
	case len(group) > 1 && isKeyLocked(err):
		return nil, group
	default:
		for _, w := range group {
			in.answer(w, requests.View{}, in.failure(w, err))
		}
	}
	return nil, nil
}

// inserter inserts a group: a requestrows.Insertion or a requestrows.Direct.
type inserter interface {
	Insert(ctx context.Context, conn *pgxpool.Conn) (requestrows.Inserted, error)
}

// beside is what the transaction that admits a group does beside inserting it.
type beside interface {
	// committed is called after the commit, with the results.
	committed(ctx context.Context, results map[requestrows.Ref]requestrows.Result)
}

// admit admits the members of the group whose callers still wait, in one
// transaction, and wakes the slots that got work. It returns these members and
// their results.
func (in *Intake) admit(ctx context.Context, group []*waiter, first bool) (present []*waiter, admitted map[requestrows.Ref]requestrows.Result, err error) {
	ctx, done := telemetry.Verb(ctx, "admission.admit")
	defer func() { done("", err) }()
	ctx, cancel := context.WithTimeout(ctx, in.config.AttemptTimeout)
	defer cancel()
	conn, err := in.db.Acquire(ctx)
	if err != nil {
		return group, nil, &unsentError{err}
	}
	defer conn.Release()
	group = in.present(group)
	if len(group) == 0 {
		return nil, nil, nil
	}
	submissions := submissionsOf(group)
	insertion, also, err := in.insertionOf(group, submissions, first)
	if err != nil {
		return group, nil, err
	}
	inserted, err := insert(ctx, conn, insertion)
	if err != nil {
		return group, nil, blockedBy(also, err)
	}
	if also != nil {
		also.committed(ctx, inserted.Results)
	}
	in.committed(inserted, submissions)
	return group, inserted.Results, nil
}

// insert inserts a group. It returns a panic as an error.
func insert(ctx context.Context, conn *pgxpool.Conn, insertion inserter) (inserted requestrows.Inserted, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("admit: panic: %v\n%s", p, debug.Stack())
		}
	}()
	return insertion.Insert(ctx, conn)
}

// recordUnknown records on the group that the outcome of an attempt is unknown,
// and returns the error of the group. The outcome stays unknown until a later
// attempt gets an answer. A later attempt that only waits for the unknown one
// to end gets none.
func recordUnknown(group []*waiter, err error) error {
	outage := pg.IsOutage(err)
	if outage && !pg.IsRetryable(err) {
		for _, w := range group {
			w.unknown = err
		}
	}
	if unknown := group[0].unknown; unknown != nil && (outage || pg.IsRetryable(err)) {
		return unknown
	}
	return err
}

// ownLockWait is the pause before a group that waits for its own earlier
// attempt is tried again.
const ownLockWait = 20 * time.Millisecond

// unsentError means that the pool had no connection, so nothing was sent to the
// database.
type unsentError struct{ cause error }

func (e *unsentError) Error() string { return e.cause.Error() }

// SafeToRetry implements the interface that pgconn.SafeToRetry checks.
func (e *unsentError) SafeToRetry() bool { return true }
