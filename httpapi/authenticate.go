package httpapi

import (
	"context"
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/holdfast/holdfast/tenants"
)

// scopeError says that a key does not open a part of the API.
type scopeError struct{ scope tenants.Scope }

func (e *scopeError) Error() string { return "the key lacks the scope " + string(e.scope) }

// guard lets calls through whose key has the scope, and puts the key's principal into the call.
func (s *service) guard(scope tenants.Scope) func(huma.Context, func(huma.Context)) {
	return func(ctx huma.Context, next func(huma.Context)) {
		c := callOf(ctx.Context())
		if err := s.authenticate(c, scope); err != nil {
			s.refuse(c.r.Context(), err).write(c.w)
			return
		}
		next(ctx)
	}
}

func (s *service) authenticate(c *call, scope tenants.Scope) (err error) {
	plaintext, ok := bearer(c.r.Header)
	if !ok {
		return errUnauthentic
	}
	if c.who, ok = s.keys.Remembered(plaintext); !ok {
		ctx, cancel := context.WithTimeout(c.r.Context(), s.bounds.authenticate)
		defer cancel()
		if c.who, err = s.keys.Authenticate(ctx, plaintext); err != nil {
			return err
		}
	}
	if !c.who.Has(scope) {
		return &scopeError{scope}
	}
	return nil
}

// bearer is the key that the call carries. Of two keys it takes none.
func bearer(h http.Header) (plaintext string, ok bool) {
	sent, _, err := only(h, "Authorization")
	if err != nil {
		return "", false
	}
	scheme, plaintext, ok := strings.Cut(sent, " ")
	plaintext = strings.TrimSpace(plaintext)
	return plaintext, ok && strings.EqualFold(scheme, "Bearer") && plaintext != ""
}
