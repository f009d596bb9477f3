package requests

import (
	"context"
	"errors"

	"github.com/holdfast/holdfast/metered"
)

// member is one caller in the line.
type member struct {
	submission Submission
	ctx        context.Context //nolint:containedctx // the caller's own
	answered   chan struct{}   // closed once request or err is set
	request    Request
	err        error
	unknown    error  // the last of its attempts that nobody knows the fate of
	lane       string // of the stream it is for, as far as is known
	own, all   *tally // where it is counted as pending: its tenant's and everybody's
	visit      metered.Visit
	rates      []metered.Rate     // that the visit is counted in
	shows      bool               // an admission token
	again      bool               // it was in a group that was blocked
	standings  []metered.Standing // set before answered is closed
}

func newMember(ctx context.Context, s Submission) *member {
	return &member{submission: s, ctx: ctx, answered: make(chan struct{})}
}

func (m *member) answer(r Request, err error) {
	m.request, m.err = r, err
	close(m.answered)
}

// told is how m's rates stand, if m was answered, and by the turnstile: where nobody knows what came of it, nothing is said.
func (m *member) told(err error) []metered.Standing {
	_, over := errors.AsType[*metered.OverRateError](err)
	select {
	case <-m.answered:
		if err == nil || over {
			return m.standings
		}
	default:
	}
	return nil
}
