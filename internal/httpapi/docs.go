package httpapi

import (
	"bytes"
	"embed"
	"fmt"
	"html/template"
	"net/http"
)

// page has the documentation page, which reads the OpenAPI document, and the
// page at the root, which links to the others. They load no asset of another
// server.
//
//go:embed docs/index.html docs/root.html docs/page.css docs/page.js
var page embed.FS

// pagePolicy lets the pages load assets of this service only.
const pagePolicy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// Link is an entry of the page at the root: a page that is served beside the
// API.
type Link struct {
	Path, Title, Text string
}

// rootPage returns the page at the root with the links.
func rootPage(links []Link) ([]byte, error) {
	root, err := template.ParseFS(page, "docs/root.html")
	if err != nil {
		return nil, fmt.Errorf("read the page at the root: %w", err)
	}
	var b bytes.Buffer
	if err := root.Execute(&b, links); err != nil {
		return nil, fmt.Errorf("make the page at the root: %w", err)
	}
	return b.Bytes(), nil
}

// addDocs registers the document, the page that shows it, and the page at the
// root.
func (s *service) addDocs() error {
	s.serve("/openapi.json", "application/openapi+json", func() []byte { return s.document })
	root, err := rootPage(s.links)
	if err != nil {
		return err
	}
	s.serve("/{$}", "text/html; charset=utf-8", func() []byte { return root })
	for path, file := range map[string]struct{ name, contentType string }{
		"/docs":          {"docs/index.html", "text/html; charset=utf-8"},
		"/docs/page.css": {"docs/page.css", "text/css; charset=utf-8"},
		"/docs/page.js":  {"docs/page.js", "text/javascript; charset=utf-8"},
	} {
		content, err := page.ReadFile(file.name)
		if err != nil {
			return fmt.Errorf("read a page: %w", err)
		}
		s.serve(path, file.contentType, func() []byte { return content })
	}
	return nil
}

// serve registers a GET of the content. A browser may cache the content and
// must revalidate it.
func (s *service) serve(path, contentType string, content func() []byte) {
	s.mux.HandleFunc("GET "+path, func(w http.ResponseWriter, r *http.Request) {
		body := content()
		tag := entityTag(body)
		resp := response{status: http.StatusOK, body: body}
		if anyMatches(r.Header.Values("If-None-Match"), tag) {
			resp = response{status: http.StatusNotModified}
		}
		resp.with("Content-Type", contentType).with("ETag", tag).with("Cache-Control", "no-cache").
			with("Content-Security-Policy", pagePolicy).with("Referrer-Policy", "no-referrer").write(w)
	})
}
