package httpapi

import (
	"context"
	"errors"
	"net/http"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/pgerr"
	"github.com/holdfast/holdfast/requests"
	"github.com/holdfast/holdfast/tenants"
)

// attemptsMax is how often the transaction of a call is tried, each time within bounds.attempt.
const attemptsMax = 3

// unknownOutcomeError says that a commit failed in a way that does not say whether it took effect.
type unknownOutcomeError struct{ cause error }

func (e *unknownOutcomeError) Error() string { return "the outcome is unknown: " + e.cause.Error() }

// Unwrap is the commit's error.
func (e *unknownOutcomeError) Unwrap() error { return e.cause }

// finish makes a call that finishes at once: work in one transaction, answered 200 with what it returns. With an
// idempotency key the answer is kept in the same transaction, and a call that was made before gets the kept one; an
// error keeps nothing, the key neither, so the next call tries anew. What must not be kept, see partlyKept, is not.
//
// It tries again where nothing happened, also because the database was silent before the commit, and where a commit's fate is
// unknown but the call has a key or method PUT, which make a second try harmless. work may thus run more than once; it must
// begin from nothing each time.
func (s *service) finish(ctx context.Context, c *call, work func(ctx context.Context, tx pgx.Tx) (any, error)) (a answer, err error) {
	for range attemptsMax {
		var commit bool
		attempt, cancel := context.WithTimeout(ctx, s.bounds.attempt)
		commit, a, err = s.tryFinish(attempt, c, work)
		cancel()
		silent := !commit && errors.Is(err, context.DeadlineExceeded)
		unknown := commit && pgerr.Code(err) == "" && !pgerr.IsRetryable(err) && !errors.Is(err, pgx.ErrTxCommitRollback)
		harmless := c.key != "" || c.r.Method == http.MethodPut
		switch {
		case err == nil:
			return a, nil
		case unknown && !harmless:
			return answer{}, &unknownOutcomeError{err}
		case !unknown && !silent && !pgerr.IsRetryable(err), ctx.Err() != nil:
			return answer{}, err
		}
	}
	return answer{}, err
}

// tryFinish is one transaction; commit says that the error is the commit's.
func (s *service) tryFinish(ctx context.Context, c *call, work func(ctx context.Context, tx pgx.Tx) (any, error)) (commit bool, a answer, err error) {
	err = pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		if c.key != "" {
			kept, err := claimTx(ctx, tx, c)
			if err != nil {
				return err
			}
			if kept != nil {
				a = replayed(*kept)
				return errReplayed
			}
		}
		done, err := work(ctx, tx)
		if err != nil {
			return err
		}
		a = respond(http.StatusOK, done)
		if c.key != "" {
			kept := tenants.Answer{StatusCode: a.status, Body: a.body}
			if whole, ok := done.(partlyKept); ok {
				kept.Body = encode(whole.kept())
			}
			if err := tenants.KeepAnswerTx(ctx, tx, c.who.TenantID, c.key, kept); err != nil {
				return err
			}
		}
		commit = true
		return nil
	})
	if errors.Is(err, errReplayed) {
		return false, a, nil
	}
	return commit, a, err
}

// partlyKept is an answer of which a part is told once. Kept, and so answered to a repetition, is what it says.
type partlyKept interface{ kept() any }

// errReplayed ends a transaction that has nothing to commit.
var errReplayed = errors.New("the answer was kept")

// claimTx claims the call's key, or returns the answer that is kept under it.
func claimTx(ctx context.Context, tx pgx.Tx, c *call) (*tenants.Answer, error) {
	kept, err := tenants.ClaimKeyTx(ctx, tx, c.who.TenantID, c.key, c.fingerprint())
	if err != nil || kept != nil {
		return kept, err
	}
	return nil, requests.FenceKeyTx(ctx, tx, c.who.TenantID, c.key)
}

func replayed(kept tenants.Answer) answer {
	return answer{status: kept.StatusCode, body: kept.Body}.with(replayedHeader, "true")
}
