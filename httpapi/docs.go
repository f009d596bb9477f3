package httpapi

import (
	"embed"
	"net/http"
)

// page is the documentation's page, which reads the OpenAPI document, and the page at the root, which links to what there
// is. Neither needs anything from elsewhere.
//
//go:embed docs/index.html docs/root.html docs/page.css docs/page.js
var page embed.FS

// pagePolicy lets the page load what this service serves, and nothing else.
const pagePolicy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// addDocs serves the document, the page that shows it, and the page at the root.
func (s *service) addDocs() {
	s.serve("/openapi.json", "application/openapi+json", func() []byte { return s.document })
	for path, file := range map[string]struct{ name, contentType string }{
		"/{$}":           {"docs/root.html", "text/html; charset=utf-8"},
		"/docs":          {"docs/index.html", "text/html; charset=utf-8"},
		"/docs/page.css": {"docs/page.css", "text/css; charset=utf-8"},
		"/docs/page.js":  {"docs/page.js", "text/javascript; charset=utf-8"},
	} {
		content, err := page.ReadFile(file.name)
		if err != nil {
			panic(err) // it is compiled in
		}
		s.serve(path, file.contentType, func() []byte { return content })
	}
}

// serve answers GET with the content, which a browser may keep but must ask about.
func (s *service) serve(path, contentType string, content func() []byte) {
	s.router.HandleFunc("GET "+path, func(w http.ResponseWriter, r *http.Request) {
		body := content()
		tag := entityTag(body)
		a := answer{status: http.StatusOK, body: body}
		if anyMatches(r.Header.Values("If-None-Match"), tag) {
			a = answer{status: http.StatusNotModified}
		}
		a.with("Content-Type", contentType).with("ETag", tag).with("Cache-Control", "no-cache").
			with("Content-Security-Policy", pagePolicy).with("Referrer-Policy", "no-referrer").write(w)
	})
}
