package httpapi

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/holdfast/holdfast/internal/tenants"
)

// anyScope is the scope of endpoints that every valid key gives access to.
const anyScope tenants.Scope = "any"

// scopeError means that the key has none of the scopes.
type scopeError struct{ scopes []tenants.Scope }

func (e *scopeError) Error() string {
	names := make([]string, len(e.scopes))
	for i, scope := range e.scopes {
		names[i] = string(scope)
	}
	return "the key lacks the scope " + strings.Join(names, " or ")
}

// requireScope rejects requests without a valid key that has one of the scopes.
// It sets the principal of the others.
func (s *service) requireScope(scopes ...tenants.Scope) func(huma.Context, func(huma.Context)) {
	return func(ctx huma.Context, next func(huma.Context)) {
		req := requestOf(ctx.Context())
		if err := s.authenticate(req, scopes); err != nil {
			s.errorResponse(req.http.Context(), err).write(req.w)
			return
		}
		next(ctx)
	}
}

// authenticate sets the principal and the scopes of the request.
//
// Errors: those of principalOf.
func (s *service) authenticate(req *request, scopes []tenants.Scope) (err error) {
	req.scopes = scopes
	req.principal, err = s.principalOf(req)
	return err
}

// principalOf returns the present principal of the request's key, which has one
// of the request's scopes.
//
// Errors: errUnauthentic, tenants.ErrUnknownKey, tenants.ErrElsewhere,
// *scopeError, *cellError, and those of the database.
func (s *service) principalOf(req *request) (p tenants.Principal, err error) {
	plaintext, ok := bearer(req.http.Header)
	if !ok {
		return p, errUnauthentic
	}
	if err := refusal(req.http.Context()); err != nil {
		return p, err
	}
	if p, ok = s.keys.Cached(plaintext); !ok {
		ctx, cancel := context.WithTimeout(req.http.Context(), s.bounds.authenticate)
		defer cancel()
		if p, err = s.keys.Authenticate(ctx, plaintext); err != nil {
			return p, err
		}
	}
	if !slices.Contains(req.scopes, anyScope) && !slices.ContainsFunc(req.scopes, p.Has) {
		return p, &scopeError{req.scopes}
	}
	return p, nil
}

// access returns a function that returns the error of a request whose key was
// revoked, or lost its scope, since the request was authenticated, or whose tenant
// was in another cell at the call before: where a client that connects again is
// served by then. An error of the database means nothing about the key.
func (s *service) access(req *request) func() error {
	elsewhere := false
	return func() error {
		_, err := s.principalOf(req)
		was := elsewhere
		elsewhere = errors.Is(err, tenants.ErrElsewhere)
		if errors.Is(err, tenants.ErrUnknownKey) || as[*scopeError](err) || was && elsewhere {
			return err
		}
		return nil
	}
}

// bearer returns the key of the request. A request with two keys has none.
func bearer(h http.Header) (plaintext string, ok bool) {
	sent, _, err := singleHeader(h, "Authorization")
	if err != nil {
		return "", false
	}
	scheme, plaintext, ok := strings.Cut(sent, " ")
	plaintext = strings.TrimSpace(plaintext)
	return plaintext, ok && strings.EqualFold(scheme, "Bearer") && plaintext != ""
}
