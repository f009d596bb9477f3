package requests_test

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/lanetest"
	"github.com/holdfast/holdfast/metered"
	"github.com/holdfast/holdfast/queues"
	"github.com/holdfast/holdfast/queues/hot"
	"github.com/holdfast/holdfast/queues/normal"
	"github.com/holdfast/holdfast/requests"
)

var discard = slog.New(slog.DiscardHandler)

var shopper = audit.Origin{Actor: audit.User("hf_shop00"), CorrelationID: "c-7"}

func newNormal(t testing.TB) *lanetest.Bench {
	t.Helper()
	return lanetest.New(t, requests.Normal, normal.NewLane)
}

func newHot(t testing.TB) *lanetest.Bench {
	t.Helper()
	return lanetest.New(t, requests.Hot, hot.NewLane)
}

// bounded is an intake that knows what waited when the test had it counted last.
type bounded struct {
	*requests.Intake
	published *queues.Load
	load      atomic.Pointer[requests.Load]
}

func newBounded(t *testing.T, b *lanetest.Bench, config requests.IntakeConfig) *bounded {
	t.Helper()
	in := &bounded{published: queues.NewLoad(b.DB, 0)}
	in.load.Store(&requests.Load{Lanes: map[string]requests.LaneLoad{}})
	config.Load = func(context.Context, time.Duration) (requests.Load, error) { return *in.load.Load(), nil }
	in.Intake = b.Intake(config)
	in.count(t)
	return in
}

// count has what waits counted, published and read by the intake.
func (in *bounded) count(t *testing.T) {
	t.Helper()
	eventually(t, "the load is published", func() bool {
		published, err := in.published.Publish(t.Context(), 0)
		must(t, err)
		return published
	})
	load, err := in.published.Read(t.Context(), time.Hour)
	must(t, err)
	in.load.Store(&load)
	must(t, in.Refresh(t.Context()))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// eventually waits until the condition holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	tick, late := time.NewTicker(time.Millisecond), time.NewTimer(30*time.Second)
	defer tick.Stop()
	defer late.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-late.C:
			t.Fatalf("never: %s", what)
		}
	}
}

// answer is what Submit or SubmitMetered returned.
type answer struct {
	request   requests.Request
	view      requests.View
	standings []metered.Standing
	err       error
}

// crowd is a number of callers that stand in an intake's line before it begins to work.
type crowd struct {
	t       *testing.T
	in      *requests.Intake
	answers []answer
	waiting sync.WaitGroup
}

// gather has every submission stand in the line of an intake that does not run yet, in the order given.
func gather(t *testing.T, b *lanetest.Bench, config requests.IntakeConfig, submissions []requests.Submission) *crowd {
	t.Helper()
	calls := make([]call, len(submissions))
	for i, s := range submissions {
		calls[i].Submission = s
	}
	return gatherCalls(t, b, config, calls)
}

// call is a submission and what is shown with it.
type call struct {
	requests.Submission
	pass requests.Pass
}

// gatherCalls is gather for callers who show passes.
func gatherCalls(t *testing.T, b *lanetest.Bench, config requests.IntakeConfig, calls []call) *crowd {
	t.Helper()
	in, err := requests.NewIntake(b.DB, b.Bell, config)
	must(t, err)
	c := &crowd{t: t, in: in, answers: make([]answer, len(calls))}
	for i, asked := range calls {
		if asked.TenantID == (requests.Submission{}).TenantID {
			asked.TenantID = b.Tenant
		}
		c.waiting.Go(func() {
			a := &c.answers[i]
			var v requests.View
			v, a.standings, a.err = in.SubmitMetered(t.Context(), asked.Submission, asked.pass)
			a.request, a.view = v.Request, v
		})
		eventually(t, "the caller stands in the line", func() bool { return in.InLine() == i+1 })
	}
	return c
}

// run lets the intake work until it has answered everybody and ended, and returns the answers.
func (c *crowd) run() []answer {
	c.t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- c.in.Run(ctx) }()
	c.waiting.Wait()
	stop()
	must(c.t, <-ended)
	return c.answers
}

// add is a submission of one unit.
func add(cart, variant, key string) requests.Submission {
	return requests.Submission{CartID: cart, VariantID: variant, Quantity: 1, IdempotencyKey: key}
}

// fingerprinted is the submission as the body of another call.
func fingerprinted(s requests.Submission, body string) requests.Submission {
	copy(s.Fingerprint[:], body)
	return s
}
