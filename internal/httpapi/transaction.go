package httpapi

import (
	"context"
	"crypto/sha256"
	"errors"
	"net/http"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/admission"
	"github.com/holdfast/holdfast/internal/carts"
	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/internal/pg"
	"github.com/holdfast/holdfast/internal/requestrows"
	"github.com/holdfast/holdfast/internal/tenants"
)

// attemptsMax is how often the transaction of a request is tried, each time
// within bounds.attempt.
const attemptsMax = 3

// unknownOutcomeError means that a COMMIT failed, and it is not known whether
// it took effect.
type unknownOutcomeError struct{ cause error }

func (e *unknownOutcomeError) Error() string { return "the outcome is unknown: " + e.cause.Error() }

// Unwrap returns the error of the COMMIT.
func (e *unknownOutcomeError) Unwrap() error { return e.cause }

// runTx runs work in one transaction and responds 200 with what it returns.
//
// With an idempotency key, the same transaction stores the response. A request
// whose key has a stored response gets that one, and work does not run. After
// an error neither the key nor a response is stored. A body that implements
// replayRedactor is stored redacted.
//
// A body that is an error is the outcome of a refused request: runTx commits
// what work has written, without the key, and returns the error.
//
// runTx tries again if nothing happened, which includes a database that was
// silent before the COMMIT. If the outcome of a COMMIT is unknown, it tries
// again only if the request has a key or the method PUT, which make that
// harmless. So work may run more than once; each run must begin without the
// state of another.
func (s *service) runTx(ctx context.Context, req *request, work func(ctx context.Context, tx pgx.Tx) (any, error)) (response, error) {
	return s.runTxAs(ctx, req, http.StatusOK, work)
}

// runTxAs is runTx with another status of success.
func (s *service) runTxAs(ctx context.Context, req *request, status int, work func(ctx context.Context, tx pgx.Tx) (any, error)) (resp response, err error) {
	for range attemptsMax {
		var committing bool
		attempt, cancel := context.WithTimeout(ctx, s.bounds.attempt)
		committing, resp, err = s.tryTx(attempt, req, status, work)
		cancel()
		silent := !committing && errors.Is(err, context.DeadlineExceeded)
		unknown := committing && pg.Code(err) == "" && !pg.IsRetryable(err) && !errors.Is(err, pgx.ErrTxCommitRollback)
		harmless := req.key != "" || req.http.Method == http.MethodPut
		switch {
		case err == nil:
			return resp, nil
		case unknown && !harmless:
			return response{}, &unknownOutcomeError{err}
		case !unknown && !silent && !pg.IsRetryable(err), ctx.Err() != nil:
			return response{}, err
		}
	}
	return response{}, err
}

// tryTx is one attempt of runTx. committing means that err is the error of the
// COMMIT.
func (s *service) tryTx(ctx context.Context, req *request, status int, work func(ctx context.Context, tx pgx.Tx) (any, error),
) (committing bool, resp response, err error) {
	var refusal error
	err = pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) (err error) {
		var stored *tenants.Answer
		var fingerprint [sha256.Size]byte
		if req.key != "" {
			fingerprint = req.fingerprint()
		}
		key := requestrows.Key{TenantID: req.principal.TenantID, Key: req.key}
		stored, refusal, err = requestrows.OnceTx(ctx, tx, key, fingerprint, func() (answer tenants.Answer, refusal, err error) {
			body, err := work(ctx, tx)
			if err != nil {
				return answer, nil, err
			}
			if refusal, ok := body.(error); ok {
				return answer, refusal, nil
			}
			resp = jsonResponse(status, body)
			answer = tenants.Answer{StatusCode: resp.status, Body: resp.body}
			if secret, ok := body.(replayRedactor); ok {
				answer.Body = encode(secret.redactForReplay())
			}
			return answer, nil, nil
		})
		if stored != nil {
			resp = replayed(*stored)
			return errReplayed
		}
		committing = err == nil
		return err
	})
	switch {
	case errors.Is(err, errReplayed):
		return false, resp, nil
	case err == nil && refusal != nil:
		return false, response{}, refusal
	}
	return committing, resp, err
}

// replayRedactor is a body with a part that only the first response may have.
// redactForReplay returns the body that is stored, and sent again, without it.
type replayRedactor interface{ redactForReplay() any }

// errReplayed ends a transaction that has nothing to commit.
var errReplayed = errors.New("the response was stored before")

func replayed(stored tenants.Answer) response {
	return response{status: stored.StatusCode, body: stored.Body}.with(replayedHeader, "true")
}

// runGrouped runs a verb in one transaction with those of other requests, and
// responds 200 with what body makes of its result. A verb that can't be in a
// group runs in a transaction of runTx.
func (s *service) runGrouped(ctx context.Context, req *request, verb inventory.Call, body func(carts.Applied) any) (response, error) {
	verb.TenantID = req.principal.TenantID
	verb.Origin = req.origin("")
	work := func(ctx context.Context, tx pgx.Tx) (any, error) {
		applied, err := carts.ApplyTx(ctx, tx, verb)
		switch {
		case err != nil:
			return nil, err
		case applied.Conflict != nil:
			return applied.Conflict, nil
		}
		return body(applied), nil
	}
	if s.groups == nil {
		return s.runTx(ctx, req, work)
	}
	call := carts.Call{Call: verb, Key: req.key}
	if req.key != "" {
		call.Fingerprint = req.fingerprint()
		call.Answer = func(r inventory.Result) (tenants.Answer, error) {
			resp := jsonResponse(http.StatusOK, body(carts.Applied{Reservations: r.Reservations}))
			return tenants.Answer{StatusCode: resp.status, Body: resp.body}, nil
		}
	}
	result, err := s.groups.Do(ctx, call)
	switch {
	case errors.Is(err, carts.ErrNotGrouped):
		return s.runTx(ctx, req, work)
	case errors.Is(err, admission.ErrOutcomeUnknown):
		return response{}, &unknownOutcomeError{err}
	case err != nil:
		return response{}, err
	case result.Replayed != nil:
		return replayed(*result.Replayed), nil
	}
	return jsonResponse(http.StatusOK, body(carts.Applied{Reservations: result.Reservations})), nil
}
