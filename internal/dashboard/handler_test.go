package dashboard

import (
	"compress/gzip"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"path"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"
)

// serve returns a server of the handler and a client that neither follows
// redirects nor decompresses.
func serve(t *testing.T, h http.Handler) (url string, client *http.Client) {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	client = server.Client()
	client.Transport.(*http.Transport).DisableCompression = true
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return server.URL, client
}

func testHandler(t *testing.T) *handler {
	t.Helper()
	assets, err := readAssets(fstest.MapFS{
		"index.html":     {Data: []byte("<!doctype html>" + strings.Repeat("<p>lanes</p>", 100))},
		"app/main.js":    {Data: []byte("1")},
		"vendor/LICENSE": {Data: []byte("MIT")},
	})
	if err != nil {
		t.Fatal(err)
	}
	return &handler{assets: assets}
}

// reply is a response that was read to its end.
type reply struct {
	status int
	header http.Header
	body   string
}

func call(t *testing.T, client *http.Client, method, url string, header http.Header) reply {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	r.Header = header
	answer, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return reply{answer.StatusCode, answer.Header, string(body)}
}

func TestHandler(t *testing.T) {
	t.Parallel()
	url, client := serve(t, testHandler(t))
	for _, c := range []struct {
		method, path string
		status       int
		contentType  string
	}{
		{"GET", "/ops/", 200, "text/html; charset=utf-8"},
		{"HEAD", "/ops/", 200, "text/html; charset=utf-8"},
		{"GET", "/ops/index.html", 200, "text/html; charset=utf-8"},
		{"GET", "/ops/app/main.js", 200, "text/javascript; charset=utf-8"},
		{"GET", "/ops/vendor/LICENSE", 200, "text/plain; charset=utf-8"},
		{"GET", "/ops", 308, "text/html; charset=utf-8"},
		{"GET", "/ops/app", 404, "text/plain; charset=utf-8"}, // a folder is not listed
		{"GET", "/ops/app/", 404, "text/plain; charset=utf-8"},
		{"GET", "/ops/../handler.go", 404, "text/plain; charset=utf-8"},
		{"GET", "/ops/%2e%2e/handler.go", 404, "text/plain; charset=utf-8"},
		{"HEAD", "/ops/none", 404, "text/plain; charset=utf-8"},
		{"POST", "/ops/", 405, "text/plain; charset=utf-8"},
		{"OPTIONS", "/ops/", 405, "text/plain; charset=utf-8"},
		{"BREW", "/ops/none", 405, "text/plain; charset=utf-8"},
	} {
		answer := call(t, client, c.method, url+c.path, nil)
		if answer.status != c.status || answer.header.Get("Content-Type") != c.contentType {
			t.Errorf("%s %s: %d %s, want %d %s", c.method, c.path, answer.status, answer.header.Get("Content-Type"), c.status, c.contentType)
		}
		for name, want := range headers {
			if got := answer.header.Get(name); got != want {
				t.Errorf("%s %s: %s is %q, want %q", c.method, c.path, name, got, want)
			}
		}
		switch {
		case c.method == http.MethodHead && answer.body != "":
			t.Errorf("HEAD %s has the body %q", c.path, answer.body)
		case c.status == http.StatusMethodNotAllowed && answer.header.Get("Allow") != "GET, HEAD":
			t.Errorf("%s %s allows %q", c.method, c.path, answer.header.Get("Allow"))
		case c.status == http.StatusPermanentRedirect && answer.header.Get("Location") != "/ops/":
			t.Errorf("%s redirects to %q", c.path, answer.header.Get("Location"))
		}
	}
}

// Each encoding has its own tag, by which a browser revalidates what it has.
func TestEncodings(t *testing.T) {
	t.Parallel()
	url, client := serve(t, testHandler(t))
	plain := call(t, client, "GET", url+"/ops/", nil)
	tags := map[string]string{"": plain.header.Get("ETag")}
	for accepted, encoding := range map[string]string{
		"identity": "", "gzip;q=0": "", "br": "", "gzip": "gzip", "br, GZIP ; q=0.5": "gzip", "deflate, gzip;q=1.0, *;q=0.5": "gzip",
	} {
		answer := call(t, client, "GET", url+"/ops/", http.Header{"Accept-Encoding": {accepted}, "Range": {"bytes=0-3"}})
		if got := answer.header.Get("Content-Encoding"); got != encoding {
			t.Errorf("%q is answered as %q, want %q", accepted, got, encoding)
		}
		if encoding == "" {
			continue
		}
		tags[encoding] = answer.header.Get("ETag")
		zipped, err := gzip.NewReader(strings.NewReader(answer.body))
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(zipped)
		if err != nil || string(text) != plain.body || answer.header.Get("Content-Length") != strconv.Itoa(len(answer.body)) {
			t.Errorf("%q: %v, %d bytes, want %d", accepted, err, len(text), len(plain.body))
		}
	}
	if tags[""] == "" || tags["gzip"] == "" || tags[""] == tags["gzip"] {
		t.Errorf("tags are %q", tags)
	}
	for encoding, tag := range tags {
		answer := call(t, client, "GET", url+"/ops/", http.Header{"Accept-Encoding": {encoding}, "If-None-Match": {`"other", W/` + tag}})
		if answer.status != http.StatusNotModified || answer.body != "" || answer.header.Get("ETag") != tag {
			t.Errorf("%s: %d %q", tag, answer.status, answer.body)
		}
	}
	if answer := call(t, client, "GET", url+"/ops/app/main.js", http.Header{"Accept-Encoding": {"gzip"}}); answer.header.Get("Content-Encoding") != "" {
		t.Error("a file that gzip makes larger is compressed")
	}
}

// firstPaintMax bounds what a browser loads before the first paint, compressed.
const firstPaintMax = 100_000

var (
	linked   = regexp.MustCompile(`<(?:script|link)\b[^>]*\b(?:src|href)="([^"]+)"`)
	imported = regexp.MustCompile(`(?m)^\s*(?:import|export)\b(?:[^"';(=]*\bfrom)?\s*["']([^"']+)["']`)
	// inline are what the policy forbids in the page: scripts and styles in it,
	// attributes with scripts or styles, and files of another server.
	inline = regexp.MustCompile(`(?i)<script>|<style\b|\sstyle=|\son[a-z]+=|(?:src|href)="(?:https?:)?//`)
)

// The page loads little before its first paint, and nothing that its policy
// forbids.
func TestFirstPaint(t *testing.T) {
	t.Parallel()
	url, client := serve(t, Handler())
	page := call(t, client, "GET", url+Path, nil).body
	if found := inline.FindString(page); found != "" {
		t.Errorf("the page has %q, which its policy forbids", found)
	}
	sum := 0
	seen := map[string]bool{}
	var load func(name string)
	load = func(name string) {
		if seen[name] {
			return
		}
		seen[name] = true
		answer := call(t, client, "GET", url+name, http.Header{"Accept-Encoding": {"gzip"}})
		if answer.status != http.StatusOK {
			t.Errorf("the page loads %s: %d", name, answer.status)
		}
		sum += len(answer.body)
		links := linked
		if strings.HasSuffix(name, ".js") || strings.HasSuffix(name, ".mjs") {
			links = imported
		}
		text := call(t, client, "GET", url+name, nil).body
		for _, found := range links.FindAllStringSubmatch(text, -1) {
			if to := found[1]; strings.HasPrefix(to, "/") {
				load(to)
			} else if !strings.HasPrefix(to, "data:") {
				load(path.Join(path.Dir(name+"x"), to))
			}
		}
	}
	load(Path)
	t.Logf("%d files, %d bytes compressed", len(seen), sum)
	if sum >= firstPaintMax {
		t.Errorf("the page loads %d bytes before the first paint, want less than %d: %v", sum, firstPaintMax, seen)
	}
}

// Every embedded file has a type that is listed, or is a licence or a note.
func TestEmbedded(t *testing.T) {
	t.Parallel()
	err := fs.WalkDir(static, "static", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		base := path.Base(name)
		if contentTypes[path.Ext(name)] == "" && !strings.Contains(strings.ToUpper(base), "LICEN") && path.Ext(name) != ".txt" && path.Ext(name) != ".md" {
			t.Errorf("%s has no content type", name)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
