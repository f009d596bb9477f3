package httpapi

import (
	"encoding/base64"
	"net/http"
	"net/url"
	"regexp"
	"strings"
)

// router is an http.ServeMux that takes every id as it was sent. The mux by itself redirects empty and dot segments, and
// takes an encoded slash that is a whole segment for the end of the path. So segments that are anything but plain reach
// it under another name, see canonicalPath, and handlers read them back.
type router struct {
	mux  *http.ServeMux
	lost http.HandlerFunc
}

// newRouter makes a router that gives whatever no endpoint matches to lost.
func newRouter(lost http.HandlerFunc) *router {
	rt := &router{http.NewServeMux(), lost}
	rt.mux.HandleFunc("/", lost)
	return rt
}

var wildcard = regexp.MustCompile(`\{([a-z_]+)\}`)

// HandleFunc registers a handler under a pattern of http.ServeMux. The handler's r.PathValue is what was sent.
func (rt *router) HandleFunc(pattern string, handler func(http.ResponseWriter, *http.Request)) {
	var names []string
	for _, match := range wildcard.FindAllStringSubmatch(pattern, -1) {
		names = append(names, match[1])
	}
	rt.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		for _, name := range names {
			if value := r.PathValue(name); strings.HasPrefix(value, veil) {
				r.SetPathValue(name, unveiled(value))
			}
		}
		handler(w, r)
	})
}

// ServeHTTP serves a request whose path is canonical. The mux alone answers the target * (RFC 9112, section 3.2.4) and
// CONNECT in ways of its own.
func (rt *router) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.RequestURI == "*" || r.Method == http.MethodConnect {
		rt.lost(w, r)
		return
	}
	rt.mux.ServeHTTP(w, r)
}

// methods are those an endpoint may have, in the order Allow names them.
var methods = []string{http.MethodGet, http.MethodHead, http.MethodPut, http.MethodPost, http.MethodPatch, http.MethodDelete}

// allowed are the methods that the canonical path of r has an endpoint for.
func (rt *router) allowed(r *http.Request) (allowed []string) {
	probe := &http.Request{URL: r.URL, Host: r.Host}
	for _, probe.Method = range methods {
		if _, pattern := rt.mux.Handler(probe); pattern != "/" && pattern != "" {
			allowed = append(allowed, probe.Method)
		}
	}
	return allowed
}

// veil begins a segment that stands for another one, whose base64 follows.
const veil = "~"

// canonicalPath is the path with each segment decoded and, unless it is plain, veiled. Two ways of writing one path have
// the same canonical path, and no two paths have.
func canonicalPath(u *url.URL) string {
	if u.RawPath == "" && isPlainPath(u.Path) {
		return u.Path
	}
	sent := u.RawPath // as it came, wherever that is not what decoding and encoding again would give
	if sent == "" {
		sent = u.EscapedPath()
	}
	segments := strings.Split(strings.TrimPrefix(sent, "/"), "/")
	if len(segments) == 1 && segments[0] == "" {
		return "/"
	}
	for i, segment := range segments {
		decoded, err := url.PathUnescape(segment)
		if err != nil { // the server has decoded the path before
			decoded = segment
		}
		if !isPlain(decoded) {
			decoded = veil + base64.RawURLEncoding.EncodeToString([]byte(decoded))
		}
		segments[i] = decoded
	}
	return "/" + strings.Join(segments, "/")
}

func isPlainPath(path string) bool {
	if len(path) < 2 || path[0] != '/' {
		return false
	}
	for segment := range strings.SplitSeq(path[1:], "/") {
		if !isPlain(segment) {
			return false
		}
	}
	return true
}

// isPlain reports whether the mux takes the segment as it is.
func isPlain(segment string) bool {
	for i := range len(segment) {
		c := segment[i]
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' && c != '_' && c != '.' {
			return false
		}
	}
	return segment != "" && segment != "." && segment != ".."
}

func unveiled(segment string) string {
	decoded, err := base64.RawURLEncoding.DecodeString(segment[len(veil):])
	if err != nil { // nobody but canonicalPath writes the veil
		return segment
	}
	return string(decoded)
}
