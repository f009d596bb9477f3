package dashboard

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"net/http"
	"path"
	"strconv"
	"strings"
	"sync"
	"time"
)

//go:embed all:static
var static embed.FS

// Path is the path of the page. All its files are below it.
const Path = "/ops/"

// policy lets the page load and call this service only, and forbids inline
// scripts and styles.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// headers are sent with every response.
var headers = map[string]string{
	"Content-Security-Policy":      policy,
	"X-Content-Type-Options":       "nosniff",
	"Referrer-Policy":              "no-referrer",
	"Cross-Origin-Opener-Policy":   "same-origin",
	"Cross-Origin-Resource-Policy": "same-origin",
	"Cache-Control":                "no-cache", // keep it, and revalidate it by its ETag
}

// Serves reports whether a URL's path belongs to the page: /ops, and all paths
// below it.
func Serves(requested string) bool {
	return requested == strings.TrimSuffix(Path, "/") || strings.HasPrefix(requested, Path)
}

// Handler serves the page and its files at Path, to any caller: they contain no
// data. /ops is redirected to Path.
func Handler() http.Handler {
	return &handler{assets: embedded()}
}

// embedded reads and compresses the files once per process.
var embedded = sync.OnceValue(func() map[string]asset {
	files, err := fs.Sub(static, "static")
	if err == nil {
		var assets map[string]asset
		assets, err = readAssets(files)
		if err == nil {
			return assets
		}
	}
	panic(err) // the files are embedded
})

// asset is one file in both encodings.
type asset struct {
	contentType   string
	tag           string // a hash of the content
	plain, zipped []byte
}

// contentTypes are the types of the files by their extension. They do not
// depend on the machine, as those of package mime do.
var contentTypes = map[string]string{
	".html":  "text/html; charset=utf-8",
	".js":    "text/javascript; charset=utf-8",
	".mjs":   "text/javascript; charset=utf-8",
	".css":   "text/css; charset=utf-8",
	".svg":   "image/svg+xml",
	".png":   "image/png",
	".ico":   "image/x-icon",
	".json":  "application/json",
	".woff2": "font/woff2",
}

// readAssets returns the files by their path.
func readAssets(files fs.FS) (map[string]asset, error) {
	assets := map[string]asset{}
	err := fs.WalkDir(files, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := fs.ReadFile(files, name)
		if err != nil {
			return err
		}
		sum := sha256.Sum256(content)
		assets[name] = asset{
			contentType: cmp.Or(contentTypes[path.Ext(name)], "text/plain; charset=utf-8"),
			tag:         hex.EncodeToString(sum[:16]), plain: content, zipped: compress(content),
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the dashboard's files: %w", err)
	}
	return assets, nil
}

func compress(content []byte) []byte {
	var b bytes.Buffer
	w, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err == nil {
		_, err = w.Write(content)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		panic(err) // the level exists, and a buffer takes everything
	}
	return b.Bytes()
}

type handler struct{ assets map[string]asset }

// writeTimeout is how long a caller may take to accept a response.
const writeTimeout = 30 * time.Second

// ServeHTTP serves one file.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTimeout)) // a writer without deadlines is in memory
	for name, value := range headers {
		w.Header().Set(name, value)
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "The dashboard is only read.", http.StatusMethodNotAllowed)
		return
	}
	name, below := strings.CutPrefix(r.URL.Path, Path)
	if !below {
		http.Redirect(w, r, Path, http.StatusPermanentRedirect)
		return
	}
	a, found := h.assets[cmp.Or(name, "index.html")]
	if !found {
		http.Error(w, "The dashboard has no such file.", http.StatusNotFound)
		return
	}
	a.serve(w, r)
}

// serve writes the asset in the encoding that the caller accepts. The two
// encodings have different tags (RFC 9110, section 8.8.3).
func (a *asset) serve(w http.ResponseWriter, r *http.Request) {
	content, tag := a.plain, a.tag
	w.Header().Set("Vary", "Accept-Encoding")
	if len(a.zipped) < len(a.plain) && acceptsGzip(r.Header) {
		content, tag = a.zipped, a.tag+"-gzip"
		w.Header().Set("Content-Encoding", "gzip")
		w.Header().Set("Content-Length", strconv.Itoa(len(content)))
		r.Header.Del("Range") // a part of a compressed file is of no use
	}
	w.Header().Set("Content-Type", a.contentType)
	w.Header().Set("ETag", `"`+tag+`"`)
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(content))
}

// acceptsGzip reports whether the caller accepts the encoding gzip (RFC 9110,
// section 12.5.3).
func acceptsGzip(h http.Header) bool {
	for _, field := range h.Values("Accept-Encoding") {
		for item := range strings.SplitSeq(field, ",") {
			coding, parameters, _ := strings.Cut(item, ";")
			if !strings.EqualFold(strings.TrimSpace(coding), "gzip") {
				continue
			}
			weight, err := strconv.ParseFloat(strings.TrimPrefix(strings.ReplaceAll(strings.ToLower(parameters), " ", ""), "q="), 64)
			return err != nil || weight > 0
		}
	}
	return false
}
