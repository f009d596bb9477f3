package requests

import (
	"slices"

	"github.com/holdfast/holdfast/internal/fair"
)

// join has m wait in the line, or says why it can't.
func join(line *fair.Line[*member], m *member) *RefusedError {
	switch refusal := line.Join(m.submission.TenantID, m); refusal {
	case fair.Joined:
		return nil
	case fair.Closed:
		return &RefusedError{Why: WhyClosing, RetryAfter: retrySoonest}
	default:
		return &RefusedError{Own: refusal == fair.OwnFull, Why: WhyLine, RetryAfter: retrySoonest}
	}
}

// enter has m wait in the line of its lane, or says why it can't.
func (in *Intake) enter(m *member) *RefusedError {
	if refused := in.aside.check(m); refused != nil {
		return refused
	}
	if refused := in.shedder.enter(m); refused != nil {
		return refused
	}
	refused := join(in.lines[m.lane], m)
	if refused != nil {
		in.shedder.leave(m, Request{}, false)
	}
	return refused
}

// answer tells m what came of it, and counts it out.
func (in *Intake) answer(m *member, v View, err error) {
	in.shedder.leave(m, v.Request, err == nil)
	m.answer(v, err)
}

// present leaves out those whose callers have gone. The others are sent next.
func (in *Intake) present(group []*member) []*member {
	return slices.DeleteFunc(group, func(m *member) bool {
		if m.ctx.Err() != nil {
			m.leave() // unless it was sent before
		}
		gone := !m.send()
		if gone {
			in.answer(m, View{}, m.gone())
		}
		return gone
	})
}
