package carts

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/admission"
	"github.com/holdfast/holdfast/internal/groupcommit"
	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/internal/pg"
	"github.com/holdfast/holdfast/internal/requestrows"
	"github.com/holdfast/holdfast/internal/telemetry"
	"github.com/holdfast/holdfast/internal/tenants"
)

// lockWait is how long the groups of a queue wait for each lock: a
// lock_timeout.
type lockWait string

const (
	shortWait lockWait = "100ms" // then the calls for a locked stock go to the contended queue
	longWait  lockWait = "1s"    // then the calls for a locked stock leave the group
)

// part is a group, or a part of one, to be committed.
type part struct {
	members []*member
	// wait is the variant whose stock the transaction waits for, nil for none.
	wait *inventory.Ref
	// retries counts the attempts after a retryable error.
	retries int
}

// retriesMax is how often a part is tried again after a retryable error, such
// as a deadlock.
const retriesMax = 2

// commitWith returns what commits the calls of a group, in as few transactions
// as it takes, and answers all of them except those that wait in a queue again.
func (g *Groups) commitWith(lockWait lockWait) func(ctx context.Context, group []*member) {
	return func(ctx context.Context, group []*member) {
		group = groupcommit.Present(group, func(*member) {}) // a caller that has left reads no result
		groupcommit.Split(part{members: group}, func(p part) []part {
			if len(p.members) == 0 {
				return nil
			}
			return g.commitPart(ctx, p, lockWait)
		})
	}
}

// commitPart commits the calls of a part, and returns the parts to be committed
// after it.
func (g *Groups) commitPart(ctx context.Context, p part, lockWait lockWait) []part {
	t := &transaction{groups: g, part: p, lockWait: lockWait}
	err := t.run(ctx)
	if err == nil {
		return t.forwardDeferred(ctx)
	}
	keyed, others := t.byKey()
	switch {
	case t.unknown(err):
		t.answerUnknown(err)
		return nil
	case t.waitingForStock() && pg.IsLockTimeout(err):
		return []part{{members: t.requeueLocked(ctx)}}
	case t.broken || pg.IsOutage(err):
		g.notGrouped(ctx, p.members)
		return nil
	case t.claiming && (pg.IsLockTimeout(err) || errors.Is(err, tenants.ErrKeyTaken) || errors.Is(err, requestrows.ErrKeyReused)):
		g.notGrouped(ctx, keyed)
		return []part{{members: others, wait: p.wait}}
	}
	g.config.Log.WarnContext(ctx, "a group of synchronous calls failed", "calls", len(p.members), "error", err)
	switch {
	case pg.IsRetryable(err) && !pg.IsLockTimeout(err) && p.retries < retriesMax:
		return []part{{members: p.members, wait: p.wait, retries: p.retries + 1}}
	case len(p.members) > 1:
		halves := groupcommit.Halves(p.members)
		return []part{{members: halves[0], wait: p.wait}, {members: halves[1], wait: p.wait}}
	}
	g.notGrouped(ctx, p.members)
	return nil
}

// notGrouped answers the members with ErrNotGrouped.
func (g *Groups) notGrouped(ctx context.Context, members []*member) {
	telemetry.VerbsAlone(ctx, len(members))
	for _, m := range members {
		m.Answer(Result{}, ErrNotGrouped)
	}
}

// requeue puts the members into a queue again.
func (g *Groups) requeue(ctx context.Context, queue *groupcommit.Queue[*member], members []*member) {
	for _, m := range members {
		m.Requeue()
		if queue.Join(m.call.TenantID, m) != groupcommit.Joined {
			g.notGrouped(ctx, []*member{m})
		}
	}
}

// forwardDeferred forwards the deferred calls: it answers or requeues them, and
// returns those that this group commits next, one part per stock.
func (t *transaction) forwardDeferred(ctx context.Context) (parts []part) {
	t.groups.notGrouped(ctx, t.ungrouped)
	t.groups.requeue(ctx, t.groups.contended, t.contended)
	queue := t.groups.queue
	if t.lockWait == longWait {
		queue = t.groups.contended
	}
	t.groups.requeue(ctx, queue, t.requeued)
	for ref, members := range t.byStock {
		parts = append(parts, part{members: members, wait: &ref})
	}
	return parts
}

// requeueLocked moves the calls for the stock that the part waited for to the
// contended queue, or out of the group, and returns the others. It marks the
// stock as locked.
func (t *transaction) requeueLocked(ctx context.Context) (others []*member) {
	var locked []*member
	for i, m := range t.members {
		if slices.Contains(t.group.Members[i].Variants(), *t.wait) {
			locked = append(locked, m)
		} else {
			others = append(others, m)
		}
	}
	if t.lockWait == longWait {
		t.groups.notGrouped(ctx, locked)
		return others
	}
	t.groups.locked.MarkLocked(t.groups.now(), *t.wait)
	t.groups.requeue(ctx, t.groups.contended, locked)
	return others
}

// byKey splits the members into those with an idempotency key and the others.
func (t *transaction) byKey() (keyed, others []*member) {
	for _, m := range t.members {
		if m.call.Key != "" {
			keyed = append(keyed, m)
		} else {
			others = append(others, m)
		}
	}
	return keyed, others
}

// unknown reports whether the error leaves the outcome of a COMMIT unknown.
func (t *transaction) unknown(err error) bool {
	return t.committing && pg.Code(err) == "" && !pg.IsRetryable(err) && !errors.Is(err, pgx.ErrTxCommitRollback)
}

// waitingForStock reports whether the transaction has not locked the stock that
// it waits for.
func (t *transaction) waitingForStock() bool {
	return t.wait != nil && t.group != nil && !t.group.HasLocked(*t.wait)
}

// answerUnknown answers the members after a COMMIT of unknown outcome. A call
// that is safe to repeat, because it has a key or was deferred to another
// transaction, is answered with ErrNotGrouped.
func (t *transaction) answerUnknown(err error) {
	for i, m := range t.members {
		switch {
		case m.call.Key != "" || t.deferred[i]:
			m.Answer(Result{}, ErrNotGrouped)
		default:
			m.Answer(Result{}, fmt.Errorf("%w: %w", admission.ErrOutcomeUnknown, err))
		}
	}
}
