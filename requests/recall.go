package requests

import (
	"context"
	"errors"
	"maps"
	"time"
)

const (
	// recallMax is how many refused callers wait at most for the look whether their key is known.
	recallMax = 2048
	// recallTimeout is how long the database may take to say so: who is refused is to be told so soon.
	recallTimeout = time.Second
)

// errUnknownKey says that a refused caller's key was not used before, or that nobody knows.
var errUnknownKey = errors.New("request: unknown key")

// refuse answers a caller who is refused. One whose key was used before is answered as ever: its request was admitted.
// Nothing is written in either case.
func (in *Intake) refuse(ctx context.Context, m *member, refused error) (View, error) {
	if m.submission.IdempotencyKey != "" && !isClosing(refused) {
		if join(in.refused, m) == nil {
			select {
			case <-m.answered:
				if !errors.Is(m.err, errUnknownKey) {
					return m.view, m.err
				}
			case <-ctx.Done(): // no answer, and nothing was written
				if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
					return View{}, ctx.Err()
				}
			}
		}
	}
	count(ctx, refused)
	return View{}, refused
}

func isClosing(refused error) bool {
	r, ok := errors.AsType[*RefusedError](refused)
	return ok && r.Why == WhyClosing
}

// recall looks up the keys of refused callers, in groups, until the line is closed.
func (in *Intake) recall(ctx context.Context) {
	for group := in.refused.Take(in.config.GroupMax); len(group) > 0; group = in.refused.Take(in.config.GroupMax) {
		found := in.known(ctx, group)
		for _, m := range group {
			a, ok := found[Ref{m.submission.TenantID, m.submission.RequestID}]
			if !ok {
				a.err = errUnknownKey
			}
			m.answer(a.view, a.err)
		}
	}
}

// known reads the requests that the keys of the group belong to; none if the database does not answer.
func (in *Intake) known(ctx context.Context, group []*member) map[Ref]admission {
	ctx, cancel := context.WithTimeout(ctx, min(recallTimeout, in.config.CommitTimeout))
	defer cancel()
	found := make(map[Ref]admission, len(group))
	if err := readBack(ctx, in.db, submissionsOf(group), found); err != nil {
		return nil
	}
	maps.DeleteFunc(found, func(_ Ref, a admission) bool { return errors.Is(a.err, errPurged) })
	return found
}
