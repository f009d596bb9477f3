package admission

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast/holdfast/internal/groupcommit"
	"github.com/holdfast/holdfast/internal/lanes"
	"github.com/holdfast/holdfast/internal/pg"
	"github.com/holdfast/holdfast/internal/requestrows"
	"github.com/holdfast/holdfast/internal/telemetry"
	"github.com/holdfast/holdfast/internal/tokens"
	"github.com/holdfast/holdfast/ratelimit"
	"github.com/holdfast/holdfast/requests"
)

var (
	// ErrOverloaded means that too many requests wait, for admission or for a
	// decision, or that the process stops. The request was not accepted. See
	// RefusedError.
	ErrOverloaded = errors.New("request: too many requests wait")
	// ErrOverLimit means that too many requests of the tenant wait, while
	// requests of other tenants may still be accepted.
	ErrOverLimit = errors.New("request: too many of the tenant's requests wait")
	// ErrOutcomeUnknown means that it is unknown whether a request was
	// admitted.
	ErrOutcomeUnknown = errors.New("request: the outcome is unknown")
)

// Why names the bound because of which a request was refused.
type Why string

// The bounds.
const (
	// WhyQueue: too many callers wait for admission in this process.
	WhyQueue Why = "queue"
	// WhyClosing: the process stops.
	WhyClosing Why = "closing"
	// WhyDepth: too many requests wait for their decision in the lane.
	WhyDepth Why = "depth"
	// WhyKey: the idempotency key is in use by a call that has not finished.
	WhyKey Why = "key"
	// WhyBusy: a rate in which the request would be counted, or its token, is
	// in use by a call that has not finished.
	WhyBusy Why = "busy"
	// WhyLocked: a table or a row that admission writes is locked by another
	// transaction, such as a change of the schema.
	WhyLocked Why = "locked"
	// WhyTimeout: the caller's deadline passed before its request was sent to
	// the database.
	WhyTimeout Why = "timeout"
	// WhyAge: the oldest request of the request's stream has waited too long
	// already.
	WhyAge Why = "age"
)

// RefusedError means that a request was refused before anything was written,
// including its idempotency key. The same call may be made again. errors.Is
// matches it to ErrOverLimit if TenantOnly is set, else to ErrOverloaded.
type RefusedError struct {
	// TenantOnly means that more of the tenant's requests wait than its share,
	// and that requests of other tenants may still be accepted.
	TenantOnly bool
	Why        Why
	// Lane is the lane in which the request would have waited; "" unless Why is
	// WhyDepth or WhyAge.
	Lane lanes.Lane
	// RetryAfter is about how long the lane takes to decide the requests that
	// wait: whole seconds, 1 to 60.
	RetryAfter time.Duration
}

func (e *RefusedError) Error() string {
	because := "too many requests wait"
	switch {
	case e.Why == WhyKey:
		because = "its idempotency key is in use"
	case e.Why == WhyBusy:
		because = "a rate in which it is counted, or its token, is in use"
	case e.Why == WhyLocked:
		because = "another transaction has locked a table or a row that it needs"
	case e.Why == WhyTimeout:
		because = "its deadline passed while it waited"
	case e.Why == WhyClosing:
		because = "the process stops"
	case e.TenantOnly:
		because = "too many of the tenant's requests wait"
	}
	return fmt.Sprintf("request refused: %s (%s), try again in %s", because, e.Why, e.RetryAfter)
}

// Is reports whether target is ErrOverLimit or ErrOverloaded, whichever the
// refusal is.
func (e *RefusedError) Is(target error) bool {
	return e.TenantOnly && target == ErrOverLimit || !e.TenantOnly && target == ErrOverloaded
}

// Bounds of RefusedError.RetryAfter.
const (
	minRetryAfter = time.Second
	retryAfterMax = time.Minute
)

// count counts a refusal by its reason.
func count(ctx context.Context, refused error) {
	if r, ok := errors.AsType[*RefusedError](refused); ok {
		telemetry.Refused(ctx, string(r.Why), r.TenantOnly)
		return
	}
	if _, ok := errors.AsType[*ratelimit.ExceededError](refused); ok {
		telemetry.Refused(ctx, "rate", true)
		return
	}
	if reason, ok := errors.AsType[tokens.RefusedError](refused); ok {
		telemetry.Refused(ctx, "token_"+string(reason), true)
		return
	}
	if errors.Is(refused, ErrTokenRequired) {
		telemetry.Refused(ctx, "token_required", true)
	}
}

// isKeyLocked reports whether err is a lock timeout because another transaction
// has locked a row with the same key, or of the same request. In all
// likelihood, it is a slow synchronous call with that key.
//
// A lock wait ends after lock_timeout, which the intake's connections ought to
// set.
func isKeyLocked(err error) bool { return pg.IsRowLocked(err, "reservation_requests") }

// failure returns the error for a caller whose request was not admitted. It
// counts a refusal.
func (in *Intake) failure(w *waiter, err error) error {
	if !pg.IsLockTimeout(err) {
		return fmt.Errorf("admit request %s: %w", w.submission.RequestID, err)
	}
	refused := &RefusedError{Why: WhyLocked, RetryAfter: minRetryAfter}
	if isKeyLocked(err) && w.submission.IdempotencyKey != "" {
		refused.Why = WhyKey
		in.keys.MarkLocked(time.Now(), w.submission.Key())
	}
	count(w.Context(), refused)
	return refused
}

const (
	// replayLookupMax is how many refused callers wait for the lookup of their
	// keys at most.
	replayLookupMax = 2048
	// replayLookupTimeout bounds a lookup, because a refused caller is to be
	// answered soon.
	replayLookupTimeout = time.Second
)

// errUnknownKey means that a refused caller's key was not used before, or that
// this is unknown.
var errUnknownKey = errors.New("request: unknown key")

// refuse answers a refused caller. If its key was used before, the caller
// receives the first answer, because its request was admitted. Nothing is
// written in either case.
func (in *Intake) refuse(ctx context.Context, w *waiter, refused error) (requests.View, error) {
	if w.submission.IdempotencyKey != "" && !isClosing(refused) {
		if join(in.replays, w) == nil {
			v, err := w.Wait()
			switch {
			case !errors.Is(err, groupcommit.ErrLeft):
				if !errors.Is(err, errUnknownKey) {
					return v, err
				}
			case !errors.Is(ctx.Err(), context.DeadlineExceeded): // no answer, and nothing was written
				return requests.View{}, ctx.Err()
			}
		}
	}
	count(ctx, refused)
	return requests.View{}, refused
}

func isClosing(refused error) bool {
	r, ok := errors.AsType[*RefusedError](refused)
	return ok && r.Why == WhyClosing
}

// lookUpReplays looks up the keys of a group of refused callers.
func (in *Intake) lookUpReplays(ctx context.Context, group []*waiter) {
	found := in.lookUp(ctx, group)
	for _, w := range group {
		result, ok := found[w.submission.Ref()]
		if !ok {
			result.Err = errUnknownKey
		}
		w.Answer(result.View, result.Err)
	}
}

// lookUp reads the requests to which the keys of the group belong. It returns
// none if the database does not answer.
func (in *Intake) lookUp(ctx context.Context, group []*waiter) map[requestrows.Ref]requestrows.Result {
	ctx, cancel := context.WithTimeout(ctx, min(replayLookupTimeout, in.config.CommitTimeout))
	defer cancel()
	found, err := requestrows.LookUp(ctx, in.db, submissionsOf(group))
	if err != nil {
		return nil
	}
	return found
}
