package storefront_test

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/holdfast/holdfast/examples/storefront"
)

var starts = time.Date(2026, 11, 27, 9, 0, 0, 0, time.UTC)

// closed is the path of the settings while there are none.
const closed = "closed"

func serve(t *testing.T, method, path string, headers ...string) *httptest.ResponseRecorder {
	t.Helper()
	handler, err := storefront.Handler(func(ctx context.Context) (storefront.Settings, error) {
		return storefront.Settings{
			Key: "hf_key", VariantID: "shoe", Name: "<script>alert(1)</script>", Price: storefront.Price{Amount: 12900, Currency: "EUR"},
			SaleStartsAt: starts, SaleEndsAt: starts.Add(time.Hour),
		}, ctx.Err()
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if path == closed {
		path = "/config.json"
		cancel()
	}
	r := httptest.NewRequestWithContext(ctx, method, path, http.NoBody)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, r)
	return w
}

// Each file is served with the headers that keep the page to its own server,
// and is cached only if it is revalidated.
func TestFiles(t *testing.T) {
	t.Parallel()
	for path, contentType := range map[string]string{
		"/": "text/html", "/main.js": "text/javascript", "/storefront.css": "text/css", "/product.svg": "image/svg+xml",
	} {
		response := serve(t, http.MethodGet, path)
		h := response.Header()
		policy := h.Get("Content-Security-Policy")
		if response.Code != http.StatusOK || !strings.HasPrefix(h.Get("Content-Type"), contentType) || response.Body.Len() == 0 {
			t.Errorf("GET %s: %d %v", path, response.Code, h)
		}
		if !strings.HasPrefix(policy, "default-src 'none'; script-src 'self'; style-src 'self';") || strings.Contains(policy, "unsafe") {
			t.Errorf("GET %s: the policy is %q", path, policy)
		}
		if h.Get("X-Content-Type-Options") != "nosniff" || h.Get("Referrer-Policy") != "no-referrer" || h.Get("Cache-Control") != "no-cache" {
			t.Errorf("GET %s: %v", path, h)
		}
		if again := serve(t, http.MethodGet, path, "If-None-Match", h.Get("ETag")); again.Code != http.StatusNotModified || again.Body.Len() > 0 {
			t.Errorf("GET %s again: %d", path, again.Code)
		}
		if head := serve(t, http.MethodHead, path); head.Code != http.StatusOK || head.Body.Len() > 0 {
			t.Errorf("HEAD %s: %d", path, head.Code)
		}
	}
}

func TestSettings(t *testing.T) {
	t.Parallel()
	response := serve(t, http.MethodGet, "/config.json")
	if response.Header().Get("Cache-Control") != "no-store" || response.Header().Get("Content-Type") != "application/json" {
		t.Errorf("the settings are served with %v", response.Header())
	}
	var got map[string]any
	if err := json.NewDecoder(response.Body).Decode(&got); err != nil {
		t.Fatal(err)
	}
	if got["key"] != "hf_key" || got["variant_id"] != "shoe" || got["name"] != "<script>alert(1)</script>" || got["sale_starts_at"] != "2026-11-27T09:00:00Z" {
		t.Errorf("the settings are %v", got)
	}
}

func TestRefused(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"/storefront.go", "/README.md", "/../storefront.go", "/x/main.js"} {
		if response := serve(t, http.MethodGet, path); response.Code != http.StatusNotFound || response.Header().Get("Content-Security-Policy") == "" {
			t.Errorf("GET %s: %d", path, response.Code)
		}
	}
	if response := serve(t, http.MethodGet, closed); response.Code != http.StatusServiceUnavailable {
		t.Errorf("without settings: %d", response.Code)
	}
	response := serve(t, http.MethodPost, "/")
	if response.Code != http.StatusMethodNotAllowed || response.Header().Get("Allow") != "GET, HEAD" {
		t.Errorf("POST /: %d %v", response.Code, response.Header())
	}
}

// asset finds what a file makes the browser load.
var asset = regexp.MustCompile(`(?:src|href)="([^"#]+)"|from "([^"]+)"|url\(([^)#]+)\)`)

// The policy would block what these rules forbid. Every asset is a file beside
// the page, and no text is used as HTML.
func TestSources(t *testing.T) {
	t.Parallel()
	names, err := filepath.Glob("*.*")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if strings.HasSuffix(name, ".go") || strings.HasSuffix(name, ".md") {
			continue
		}
		source, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range asset.FindAllStringSubmatch(string(source), -1) {
			path := strings.TrimPrefix(found[1]+found[2]+found[3], "./")
			if response := serve(t, http.MethodGet, "/"+path); response.Code != http.StatusOK {
				t.Errorf("%s loads %s: %d", name, path, response.Code)
			}
		}
		for _, forbidden := range []string{"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "style=", "onclick=", "<style"} {
			if strings.Contains(string(source), forbidden) {
				t.Errorf("%s contains %s", name, forbidden)
			}
		}
		if lines := bytes.Count(source, []byte("\n")); lines > 400 {
			t.Errorf("%s has %d lines", name, lines)
		}
	}
}
