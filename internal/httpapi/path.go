package httpapi

import (
	"net/url"
	"strings"
)

// canonicalURL returns u with its path in one spelling, for the mux and for the
// fingerprint of a request: each segment is decoded and escaped again.
//
// A segment that is empty, only dots or only slashes becomes refusedSegment. A
// mux redirects a path with empty segments or dots, and takes a segment that is
// an encoded slash for the end of the path.
func canonicalURL(u *url.URL) *url.URL {
	if u.RawPath == "" && isPlainPath(u.Path) {
		return u
	}
	canonical := *u
	if u.Path == "" {
		canonical.Path = "/"
		return &canonical
	}
	segments := strings.Split(strings.TrimPrefix(u.EscapedPath(), "/"), "/")
	for i, segment := range segments {
		decoded, err := url.PathUnescape(segment)
		if err != nil { // EscapedPath can be decoded
			decoded = segment
		}
		segments[i] = escapeSegment(decoded)
	}
	canonical.RawPath = "/" + strings.Join(segments, "/")
	path, err := url.PathUnescape(canonical.RawPath)
	if err != nil { // RawPath was escaped here
		path = canonical.RawPath
	}
	canonical.Path = path
	return &canonical
}

// refusedSegment is the escaped id ".". inventory.ValidateID refuses it, so an
// endpoint with an id at its place responds 422 and names the field. A path
// without one has no endpoint.
const refusedSegment = "%2E"

func escapeSegment(decoded string) string {
	if strings.Trim(decoded, ".") == "" || strings.Trim(decoded, "/") == "" {
		return refusedSegment
	}
	return url.PathEscape(decoded)
}

// isPlainPath reports whether the path is canonical and has nothing to decode.
func isPlainPath(path string) bool {
	if path == "/" {
		return true
	}
	if path == "" || path[0] != '/' {
		return false
	}
	for segment := range strings.SplitSeq(path[1:], "/") {
		if strings.Trim(segment, ".") == "" || !isUnreserved(segment) {
			return false
		}
	}
	return true
}

// isUnreserved reports whether s has only characters that a path never escapes
// (RFC 3986, section 2.3).
func isUnreserved(s string) bool {
	for i := range len(s) {
		c := s[i]
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && !strings.ContainsRune("-_.~", rune(c)) {
			return false
		}
	}
	return true
}
