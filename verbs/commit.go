package verbs

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/fair"
	"github.com/holdfast/holdfast/internal/pgerr"
	"github.com/holdfast/holdfast/internal/telemetry"
	"github.com/holdfast/holdfast/inventory"
	"github.com/holdfast/holdfast/requests"
	"github.com/holdfast/holdfast/tenants"
)

// patience is how long the groups of a line wait for a lock.
type patience int

const (
	quick   patience = iota // 100 ms; what is for a locked stock goes to the slow line
	patient                 // a second; what is for a locked stock is made alone
)

// part is a group, or a part of one, that is to be committed.
type part struct {
	members []*member
	// wait is the variant whose stock is waited for, nil for none.
	wait *inventory.Ref
	// tries counts the errors that another try may mend.
	tries int
}

// triesMax is how often a part is tried again after an error such as a deadlock.
const triesMax = 2

// commit commits the calls of a group, in as few transactions as it takes, and answers all of them, but for those that
// wait in a line again.
func (g *Groups) commit(ctx context.Context, group []*member, patience patience) {
	members := make([]*member, 0, len(group))
	for _, m := range group {
		if m.state.CompareAndSwap(waits, sent) {
			members = append(members, m)
		}
	}
	for todo := []part{{members: members}}; len(todo) > 0; {
		p := todo[0]
		todo = todo[1:]
		if len(p.members) > 0 {
			todo = append(todo, g.commitPart(ctx, p, patience)...)
		}
	}
}

// commitPart commits the calls of a part, and returns what is to be committed after it.
func (g *Groups) commitPart(ctx context.Context, p part, patience patience) []part {
	t := &transaction{groups: g, part: p, patience: patience}
	err := t.run(ctx)
	if err == nil {
		return t.rest(ctx)
	}
	keyed, others := t.byKey()
	half := len(p.members) / 2
	switch {
	case t.unknown(err):
		t.answerUnknown(err)
		return nil
	case t.waits() && pgerr.IsLockTimeout(err):
		return []part{{members: t.giveUp(ctx)}}
	case t.broken || pgerr.IsOutage(err):
		g.answerAlone(ctx, p.members)
		return nil
	case t.claiming && (pgerr.IsLockTimeout(err) || errors.Is(err, tenants.ErrKeyTaken) || errors.Is(err, requests.ErrKeyReused)):
		g.answerAlone(ctx, keyed)
		return []part{{members: others, wait: p.wait}}
	}
	g.config.Log.WarnContext(ctx, "a group of verbs failed", "calls", len(p.members), "error", err)
	switch {
	case pgerr.IsRetryable(err) && !pgerr.IsLockTimeout(err) && p.tries < triesMax:
		return []part{{members: p.members, wait: p.wait, tries: p.tries + 1}}
	case half > 0:
		return []part{{members: p.members[:half], wait: p.wait}, {members: p.members[half:], wait: p.wait}}
	}
	g.answerAlone(ctx, p.members)
	return nil
}

func (g *Groups) answerAlone(ctx context.Context, members []*member) {
	telemetry.VerbsAlone(ctx, len(members))
	for _, m := range members {
		m.answer(Result{}, ErrAlone)
	}
}

// again has the members wait in a line again.
func (g *Groups) again(ctx context.Context, line *fair.Line[*member], members []*member) {
	for _, m := range members {
		m.state.Store(waits)
		if line.Join(m.call.TenantID, m) != fair.Joined {
			g.answerAlone(ctx, []*member{m})
		}
	}
}

// rest sends the calls that were left where they are made, and returns those that this group makes yet.
func (t *transaction) rest(ctx context.Context) (parts []part) {
	t.groups.answerAlone(ctx, t.alone)
	t.groups.again(ctx, t.groups.slow, t.slow)
	line := t.groups.line
	if t.patience == patient {
		line = t.groups.slow
	}
	t.groups.again(ctx, line, t.later)
	for ref, members := range t.missing {
		parts = append(parts, part{members: members, wait: &ref})
	}
	return parts
}

// giveUp notes that the stock which the part waited for stays locked, leaves the calls for it to the slow line, or alone,
// and returns the others.
func (t *transaction) giveUp(ctx context.Context) (others []*member) {
	var locked []*member
	for i, m := range t.members {
		if slices.Contains(t.group.Variants(i), *t.wait) {
			locked = append(locked, m)
		} else {
			others = append(others, m)
		}
	}
	if t.patience == patient {
		t.groups.answerAlone(ctx, locked)
		return others
	}
	t.groups.blocked.note(*t.wait)
	t.groups.again(ctx, t.groups.slow, locked)
	return others
}

// byKey parts the members into those with an idempotency key and the others.
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

// unknown reports that the error is of a commit, and does not say whether it took effect.
func (t *transaction) unknown(err error) bool {
	return t.committing && pgerr.Code(err) == "" && !pgerr.IsRetryable(err) && !errors.Is(err, pgx.ErrTxCommitRollback)
}

// waits reports whether the transaction has not got the stock that it waits for.
func (t *transaction) waits() bool {
	return t.wait != nil && t.group != nil && !t.group.HasStock(*t.wait)
}

// answerUnknown has those make their call again for which that is harmless, because they have a key or were left to
// another transaction.
func (t *transaction) answerUnknown(err error) {
	for i, m := range t.members {
		switch {
		case m.call.Key != "" || t.left[i]:
			m.answer(Result{}, ErrAlone)
		default:
			m.answer(Result{}, fmt.Errorf("%w: %w", requests.ErrOutcomeUnknown, err))
		}
	}
}
