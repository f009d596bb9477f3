package admission_test

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/admission"
	"github.com/holdfast/holdfast/internal/lanes"
	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/internal/queues"
	"github.com/holdfast/holdfast/internal/requestrows"
	"github.com/holdfast/holdfast/internal/testkit"
	"github.com/holdfast/holdfast/ratelimit"
	"github.com/holdfast/holdfast/requests"
)

var discard = slog.New(slog.DiscardHandler)

var shopper = audit.Origin{Actor: audit.User("hf_shop00"), CorrelationID: "c-7"}

func newNormal(t testing.TB) *testkit.Fixture {
	t.Helper()
	return testkit.New(t, lanes.Normal)
}

func newHot(t testing.TB) *testkit.Fixture {
	t.Helper()
	return testkit.New(t, lanes.Hot)
}

// bounded is an intake whose load is the test's last count.
type bounded struct {
	*admission.Intake
	published *queues.Load
	load      atomic.Pointer[lanes.Load]
}

func newBounded(t *testing.T, b *testkit.Fixture, config admission.IntakeConfig) *bounded {
	t.Helper()
	in := &bounded{published: queues.NewLoad(b.DB)}
	in.load.Store(&lanes.Load{Lanes: map[lanes.Lane]lanes.LaneLoad{}})
	config.Load = func(context.Context, time.Duration) (lanes.Load, error) { return *in.load.Load(), nil }
	in.Intake = b.Intake(config)
	in.count(t)
	return in
}

// count counts and publishes the load, and makes the intake read it.
func (in *bounded) count(t *testing.T) {
	t.Helper()
	pgtest.Until(t, "the load is published", func() bool {
		published, err := in.published.Publish(t.Context(), 0)
		pgtest.Must(t, err)
		return published
	})
	load, err := in.published.Read(t.Context(), time.Hour)
	pgtest.Must(t, err)
	in.load.Store(&load)
	pgtest.Must(t, in.Refresh(t.Context()))
}

// answer is what Submit or SubmitMetered returned.
type answer struct {
	request requests.Request
	view    requests.View
	states  []ratelimit.State
	err     error
}

// crowd is a number of callers that wait in an intake's queues before it runs.
type crowd struct {
	t       *testing.T
	in      *admission.Intake
	answers []answer
	waiting sync.WaitGroup
}

// gather submits every submission to an intake that does not run yet, in the
// order given. It returns when all of them wait in its queues.
func gather(t *testing.T, b *testkit.Fixture, config admission.IntakeConfig, submissions []requestrows.Submission) *crowd {
	t.Helper()
	calls := make([]call, len(submissions))
	for i, s := range submissions {
		calls[i].Submission = s
	}
	return gatherCalls(t, b, config, calls)
}

// call is a submission and its credentials.
type call struct {
	requestrows.Submission
	credentials admission.Credentials
}

// gatherCalls is gather for callers with credentials.
func gatherCalls(t *testing.T, b *testkit.Fixture, config admission.IntakeConfig, calls []call) *crowd {
	t.Helper()
	in, err := admission.NewIntake(b.DB, b.Inserter, config)
	pgtest.Must(t, err)
	c := &crowd{t: t, in: in, answers: make([]answer, len(calls))}
	for i, asked := range calls {
		if asked.TenantID == (requestrows.Submission{}).TenantID {
			asked.TenantID = b.Tenant
		}
		c.waiting.Go(func() {
			a := &c.answers[i]
			var v requests.View
			v, a.states, a.err = in.SubmitMetered(t.Context(), asked.Submission, asked.credentials)
			a.request, a.view = v.Request, v
		})
		pgtest.Until(t, "the caller is in the queue", func() bool { return in.Waiting() == i+1 })
	}
	return c
}

// run runs the intake until it has answered all callers and ended, and returns
// the answers.
func (c *crowd) run() []answer {
	c.t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- c.in.Run(ctx) }()
	c.waiting.Wait()
	stop()
	pgtest.Must(c.t, <-ended)
	return c.answers
}

// add returns a submission of one unit.
func add(cart, variant, key string) requestrows.Submission {
	return requestrows.Submission{CartID: cart, VariantID: variant, Quantity: 1, IdempotencyKey: key}
}

// fingerprinted returns the submission with the fingerprint of another call.
func fingerprinted(s requestrows.Submission, body string) requestrows.Submission {
	copy(s.Fingerprint[:], body)
	return s
}
