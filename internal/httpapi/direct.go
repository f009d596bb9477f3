package httpapi

import (
	"net/http"

	"github.com/google/uuid"
)

// router registers huma's handlers in the mux. direct has, by pattern, how the
// busy endpoints serve a request without huma, whose reflection costs as much as
// the rest of such a call. It reports false, having done nothing, for a request
// with a query or with an invalid parameter, to which huma responds.
type router struct {
	*http.ServeMux
	direct map[string]func(*request) bool
}

// HandleFunc registers the handler that huma made for a pattern.
func (r router) HandleFunc(pattern string, handler func(http.ResponseWriter, *http.Request)) {
	serve, ok := r.direct[pattern]
	if !ok {
		r.ServeMux.HandleFunc(pattern, handler)
		return
	}
	r.ServeMux.HandleFunc(pattern, func(w http.ResponseWriter, hr *http.Request) {
		if !serve(requestOf(hr.Context())) {
			handler(w, hr)
		}
	})
}

// directParams are parameters of a path that are read without huma.
type directParams interface {
	// read reads them, and reports whether they are valid.
	read(r *http.Request) bool
}

func (p *cartParams) read(r *http.Request) bool {
	p.CartID = cartID(r.PathValue("cart_id"))
	return checkCartID(string(p.CartID)) == nil
}

// read accepts only the spelling that the API itself uses.
func (p *getRequestParams) read(r *http.Request) bool {
	id := r.PathValue("request_id")
	var err error
	p.RequestID, err = uuid.Parse(id)
	return err == nil && id == p.RequestID.String()
}

// addDirect lets the endpoint serve requests without huma, if it can.
func addDirect[P, B any](s *service, e *endpoint[P, B]) {
	if _, ok := any(new(P)).(directParams); !ok || e.scope == "" || s.direct == nil {
		return
	}
	scopes := e.scopes()
	s.direct[e.method+" "+e.path] = func(req *request) bool {
		p := new(P)
		if req.http.URL.RawQuery != "" || req.correlationError != "" || !any(p).(directParams).read(req.http) {
			return false
		}
		ctx := req.http.Context()
		if err := s.authenticate(req, scopes); err != nil {
			s.errorResponse(ctx, err).write(req.w)
			return true
		}
		e.serve(ctx, s, req, p).write(req.w)
		return true
	}
}
