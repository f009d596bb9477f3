package httpapi

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestIDsInPaths sends ids in paths. An endpoint receives each id as it was
// sent, or answers 422 with the name of its field. It never redirects.
func TestIDsInPaths(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	for _, id := range []string{
		"rolls/buns", "/rolls", "rolls/", "a//b", "a/../b", ".a", "a..", "./", "../..", "a b", " ", "+", "%2F", "%", "?", "#", "ü", "日本", "😀", "~", "~Lg", "{variant_id}",
		"import", "adjust", "a;b", "a&b=c", `"`, `\`, "'", "*", ":", strings.Repeat("ß", 128),
	} {
		path := "/v1/stocks/" + escapeAll(id)
		if got := s.call(200, "PUT", path, `{"stock":1}`).text(t, "variant_id"); got != id {
			t.Errorf("%s is the id %q, want %q", path, got, id)
		}
		if got := s.call(200, "GET", path, "").text(t, "variant_id"); got != id {
			t.Errorf("%s reads %q, want %q", path, got, id)
		}
		s.call(200, "POST", path+"/adjust", `{"delta":1}`)
		cart := "/v1/carts/" + escapeAll(id)
		if got := s.call(200, "GET", cart, "").text(t, "cart_id"); got != id {
			t.Errorf("%s is the cart %q, want %q", cart, got, id)
		}
		s.call(202, "PATCH", cart+"/items/"+escapeAll(id), `{"quantity":1}`)
	}
	before := s.written()
	for path, field := range map[string]string{
		"/v1/stocks/%FF": "variant_id", "/v1/stocks/%00": "variant_id", "/v1/stocks/a%0Ab": "variant_id", "/v1/stocks/": "variant_id",
		"/v1/stocks/%C3%28": "variant_id", "/v1/stocks/%7F": "variant_id", "/v1/stocks/%C2%85": "variant_id", "/v1/stocks/%ED%A0%80": "variant_id",
		"/v1/stocks/" + strings.Repeat("x", 129): "variant_id",
		"/v1/stocks/.":                           "variant_id", "/v1/stocks/..": "variant_id", "/v1/stocks/...": "variant_id", "/v1/stocks/%2E": "variant_id",
		"/v1/stocks/%2e%2E": "variant_id", "/v1/stocks/.%2E": "variant_id", "/v1/stocks/%2F": "variant_id", "/v1/stocks/%2f%2F": "variant_id",
		"/v1/carts/%00": "cart_id", "/v1/carts/": "cart_id", "/v1/carts/%2E%2E": "cart_id", "/v1/carts/%2F": "cart_id", "/v1/carts/..": "cart_id",
	} {
		p := s.refused(invalid, "GET", path, "")
		if len(p.Errors) != 1 || p.Errors[0].Field != field {
			t.Errorf("%s: the fields are %v, want %s", path, p.Errors, field)
		}
	}
	p := s.refused(invalid, "PATCH", "/v1/carts//items/%FF", `{"quantity":1}`)
	want := fieldErrors{{"cart_id", "must not be empty, only dots or only slashes"}, {"variant_id", "must be valid UTF-8"}}
	if diff := cmp.Diff([]fieldError(want), p.Errors); diff != "" {
		t.Errorf("two wrong ids (-want +got):\n%s", diff)
	}
	for _, id := range []string{".", "..", "/", "//"} {
		for _, call := range []struct{ method, path, body, field string }{
			{"PUT", "/v1/stocks/" + escapeAll(id), `{"stock":1}`, "variant_id"},
			{"POST", "/v1/stocks/" + escapeAll(id) + "/adjust", `{"delta":1}`, "variant_id"},
			{"POST", "/v1/carts/c/items", `{"variant_id":"` + id + `","quantity":1}`, "variant_id"},
			{"POST", "/v1/carts/" + escapeAll(id) + "/items", `{"variant_id":"shirt","quantity":1}`, "cart_id"},
			{"PATCH", "/v1/carts/c/items/" + escapeAll(id), `{"quantity":1}`, "variant_id"},
			{"PATCH", "/v1/carts/" + escapeAll(id) + "/items/shirt", `{"quantity":1}`, "cart_id"},
			{"DELETE", "/v1/carts/c/items/" + escapeAll(id), "", "variant_id"},
			{"POST", "/v1/carts/" + escapeAll(id) + "/checkout", "", "cart_id"},
		} {
			p := s.refused(invalid, call.method, call.path, call.body)
			if len(p.Errors) != 1 || p.Errors[0].Field != call.field {
				t.Errorf("%s %s %s: the fields are %v, want %s", call.method, call.path, call.body, p.Errors, call.field)
			}
		}
	}
	if after := s.written(); after != before {
		t.Errorf("wrong ids wrote %d rows", after-before)
	}
}

// escapeAll encodes every byte that has a meaning in a path.
func escapeAll(id string) string {
	return strings.ReplaceAll(url.PathEscape(id), ".", "%2E")
}

// TestNotFound checks the problems of paths and methods without an endpoint,
// and the methods in Allow.
func TestNotFound(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	for _, path := range []string{
		"//", "/v1", "/v1/", "/v2/stocks", "/v1/stocks/a/b", "/v1/../v1/stocks", "/v1//stocks", "/v1/./stocks", "/docs/", "/docs/../livez", "/livez/",
		"/v1/stocks/rolls/buns", "/%2e%2e/%2e%2e/etc/passwd", "/v1%2Fstocks", "/openapi.yaml", "/favicon.ico",
	} {
		for _, method := range []string{"GET", "POST", "DELETE", "OPTIONS", "PROPFIND"} {
			s.refused(noRoute, method, path, "", "Authorization", "")
		}
	}
	golden(t, "not_found_path", s.call(404, "GET", "/v1/nothing", ""))
	golden(t, "method_not_allowed", s.call(405, "PATCH", "/v1/stocks/shirt", "{}"))
	for path, want := range map[string]string{
		"/v1/stocks":                  "GET, HEAD, OPTIONS",
		"/v1/stocks/shirt":            "GET, HEAD, PUT, DELETE, OPTIONS",
		"/v1/stocks/rolls%2Fbuns":     "GET, HEAD, PUT, DELETE, OPTIONS",
		"/v1/stocks/import":           "GET, HEAD, PUT, POST, DELETE, OPTIONS",
		"/v1/stocks/shirt/adjust":     "POST, OPTIONS",
		"/v1/carts/c/items/shirt":     "PATCH, DELETE, OPTIONS",
		"/v1/carts/c":                 "GET, HEAD, DELETE, OPTIONS",
		"/v1/lanes/hot":               "PATCH, OPTIONS",
		"/":                           "GET, HEAD, OPTIONS",
		"/livez":                      "GET, HEAD, OPTIONS",
		"/metrics":                    "GET, HEAD, OPTIONS",
		"/openapi.json":               "GET, HEAD, OPTIONS",
		"/v1/reservations/%20/commit": "POST, OPTIONS",
	} {
		r := s.call(204, "OPTIONS", path, "", "Authorization", "")
		if got := r.header.Get("Allow"); got != want {
			t.Errorf("OPTIONS %s allows %s, want %s", path, got, want)
		}
		if r := s.call(405, "PROPFIND", path, ""); r.header.Get("Allow") != want {
			t.Errorf("PROPFIND %s allows %s, want %s", path, r.header.Get("Allow"), want)
		}
	}
}

// TestHead checks that HEAD is answered like GET, without the body.
func TestHead(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.stock("shirt", `{"stock":1}`)
	for _, path := range []string{"/v1/stocks/shirt", "/v1/stocks", "/livez", "/openapi.json", "/docs", "/"} {
		get, head := s.call(200, "GET", path, ""), s.call(200, "HEAD", path, "")
		if len(head.body) != 0 || head.header.Get("Content-Length") != get.header.Get("Content-Length") {
			t.Errorf("HEAD %s: %d bytes, length %s, want %s", path, len(head.body), head.header.Get("Content-Length"), get.header.Get("Content-Length"))
		}
	}
	s.call(401, "HEAD", "/v1/stocks/shirt", "", "Authorization", "")
}

// FuzzPath checks that any id, in any spelling, reaches the endpoint of its
// path.
func FuzzPath(f *testing.F) {
	for _, seed := range []string{"a", "", "/", "..", ".", "~", "~Lg", "a/b", "\xff", "\x00", "ü ", "%2F", "import", "items", strings.Repeat("/", 9)} {
		f.Add(seed, seed, true)
		f.Add(seed, "x", false)
	}
	var cart, variant string
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(http.ResponseWriter, *http.Request) { cart, variant = "no", "endpoint" })
	mux.HandleFunc("PATCH /v1/carts/{cart_id}/items/{variant_id}", func(_ http.ResponseWriter, r *http.Request) {
		cart, variant = r.PathValue("cart_id"), r.PathValue("variant_id")
	})
	mux.HandleFunc("DELETE /v1/carts/{cart_id}", func(http.ResponseWriter, *http.Request) {})
	f.Fuzz(func(t *testing.T, wantCart, wantVariant string, every bool) {
		escape := url.PathEscape
		if every {
			escape = percent
		}
		r := httptest.NewRequestWithContext(t.Context(), "PATCH", "/", http.NoBody)
		u, err := url.ParseRequestURI("/v1/carts/" + escape(wantCart) + "/items/" + escape(wantVariant))
		if err != nil {
			t.Fatal(err)
		}
		r.URL = u
		w := httptest.NewRecorder()
		req := newRequest(w, r)
		mux.ServeHTTP(w, req.http)
		if w.Code != 200 || !arrived(wantCart, cart) || !arrived(wantVariant, variant) {
			t.Fatalf("%s: answered %d, cart %q, variant %q", u, w.Code, cart, variant)
		}
	})
}

// arrived reports whether an endpoint received the id that was sent. For an id
// that is empty, only dots or only slashes, it reports whether the received one
// is refused too.
func arrived(sent, got string) bool {
	if strings.Trim(sent, ".") == "" || strings.Trim(sent, "/") == "" {
		return got == "."
	}
	return got == sent
}

// percent encodes every byte of s.
func percent(s string) string {
	const digits = "0123456789ABCDEF"
	var b strings.Builder
	for i := range len(s) {
		b.Write([]byte{'%', digits[s[i]>>4], digits[s[i]&15]})
	}
	return b.String()
}
