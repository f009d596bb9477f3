package requests

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/google/uuid"

	"github.com/holdfast/holdfast/internal/telemetry"
	"github.com/holdfast/holdfast/metered"
)

// Why says which bound a refusal comes from.
type Why string

// The bounds.
const (
	// WhyLine: too many callers wait for admission in this process.
	WhyLine Why = "line"
	// WhyClosing: the process stops.
	WhyClosing Why = "closing"
	// WhyDepth: too many requests wait for their decision in the lane.
	WhyDepth Why = "depth"
	// WhyKey: the idempotency key is in use by a call that has not finished.
	WhyKey Why = "key"
	// WhyBusy: a rate that the request would be counted in, or its token, is in use by a call that has not finished.
	WhyBusy Why = "busy"
	// WhyLocked: a table or a row that admission writes is locked by another transaction, such as a change of the schema.
	WhyLocked Why = "locked"
	// WhyTimeout: the caller's context ended before its turn came.
	WhyTimeout Why = "timeout"
	// WhyAge: what waits in the request's stream has waited too long already.
	WhyAge Why = "age"
)

// RefusedError says that a request was refused before anything was written, its idempotency key neither: the same call
// may be made again. It is ErrOverLimit if what waits is the tenant's own, else ErrOverloaded.
type RefusedError struct {
	// Own says that the tenant has more waiting than its share, and others may still come.
	Own bool
	Why Why
	// Lane is where the request would have waited; "" unless Why is WhyDepth or WhyAge.
	Lane string
	// RetryAfter is about how long what waits takes to be decided: whole seconds, 1 to 60.
	RetryAfter time.Duration
}

func (e *RefusedError) Error() string {
	because := "too much waits"
	switch {
	case e.Why == WhyKey:
		because = "its idempotency key is in use"
	case e.Why == WhyBusy:
		because = "what it is counted in, or its token, is in use"
	case e.Why == WhyLocked:
		because = "another transaction has locked what it is stored in"
	case e.Why == WhyTimeout:
		because = "it waited too long for its turn"
	case e.Why == WhyClosing:
		because = "the process stops"
	case e.Own:
		because = "too much of the tenant's waits"
	}
	return fmt.Sprintf("request refused: %s (%s), try again in %s", because, e.Why, e.RetryAfter)
}

// Is makes the error one of the two.
func (e *RefusedError) Is(target error) bool {
	return e.Own && target == ErrOverLimit || !e.Own && target == ErrOverloaded
}

// Bounds of what a refused caller is told.
const (
	retrySoonest = time.Second
	retryLatest  = time.Minute
)

// judge returns nil if a request of the tenant may wait in the stream, by what is known to wait.
//
// The bound is a lane's depth. A tenant may have as much of it as is free, times the ratio of its share to the rest: alone
// it fills its share, and the more tenants have requests waiting, the more is left for the next one.
func (s *shedder) judge(tenantID uuid.UUID, stream Wake) *RefusedError {
	lane, all, own := s.load.Lanes[stream.Lane], tenantLane{lane: stream.Lane}, tenantLane{tenantID, stream.Lane}
	depth := lane.Depth + int64(len(s.admitted[all])) + s.pending[all]
	mine := lane.Deepest[tenantID] + int64(len(s.admitted[own])) + s.pending[own]
	limit := int64(s.config.DepthMax)
	if lane.RateCap > 0 { // more than this would be too old before its turn
		limit = min(limit, max(1, int64(float64(lane.RateCap)*s.config.AgeMax.Seconds())))
	}
	allowed := limit
	if share := int64(s.config.TenantSharePercent); share < 100 {
		allowed = max(0, (limit-depth)*share/(100-share))
	}
	refused := &RefusedError{Lane: stream.Lane, RetryAfter: lane.retryAfter(depth)}
	there := lane.Streams[stream.Slot]
	switch {
	case depth >= limit || mine >= allowed:
		refused.Why, refused.Own = WhyDepth, mine*max(1, lane.Tenants) >= depth
	case there.OldestSeconds+s.load.Age.Seconds() > s.config.AgeMax.Seconds() && there.Depth > 0:
		sole := there.SoleTenant != nil && *there.SoleTenant == tenantID
		refused.Why, refused.Own = WhyAge, sole && !lane.Paused && lane.Rate > 0
	default:
		return nil
	}
	return refused
}

// retryAfter is about how long depth requests take to be decided.
func (l LaneLoad) retryAfter(depth int64) time.Duration {
	if l.Rate <= 0 || l.Paused {
		return retryLatest
	}
	seconds := math.Ceil(float64(depth) / l.Rate)
	return min(max(time.Duration(min(seconds, retryLatest.Seconds()))*time.Second, retrySoonest), retryLatest)
}

// count counts a refusal by its reason.
func count(ctx context.Context, refused error) {
	if r, ok := errors.AsType[*RefusedError](refused); ok {
		telemetry.Refused(ctx, string(r.Why), r.Own)
		return
	}
	for _, reason := range reasons {
		if reason.matches(refused) {
			telemetry.Refused(ctx, reason.name, true)
			return
		}
	}
}

// reasons name what a turnstile refuses for.
var reasons = []struct {
	name    string
	matches func(error) bool
}{
	{"rate", func(err error) bool { _, ok := errors.AsType[*metered.OverRateError](err); return ok }},
	{"token_required", is(ErrTokenRequired)},
	{"token_malformed", is(metered.ErrTokenMalformed)},
	{"token_unknown", is(metered.ErrTokenUnknown)},
	{"token_purpose", is(metered.ErrTokenPurpose)},
	{"token_subject", is(metered.ErrTokenSubject)},
	{"token_used", is(metered.ErrTokenUsed)},
	{"token_expired", is(metered.ErrTokenExpired)},
}

func is(target error) func(error) bool {
	return func(err error) bool { return errors.Is(err, target) }
}
