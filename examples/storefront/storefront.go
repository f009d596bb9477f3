package storefront

import (
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
	"path"
	"strings"
	"time"
)

//go:embed *.html *.css *.js *.svg
var files embed.FS

// Settings are what the page reads from config.json.
type Settings struct {
	// Key is an API key for the browser. Every visitor can read it: it must have
	// the scope cart and no other.
	Key string `json:"key"`
	// VariantID is what is sold, Name and Price how the page shows it.
	VariantID string `json:"variant_id"`
	Name      string `json:"name"`
	Price     Price  `json:"price"`
	// MaxPerCart is how many units the page offers for a cart at one time; 0 for
	// its default. The limit that counts is the one of the stock. A visitor who
	// has checked out can buy the same again.
	MaxPerCart int32 `json:"max_per_cart,omitempty"`
	// ExtendSeconds is by how much the page extends a hold; 0 for its default.
	ExtendSeconds int32 `json:"extend_seconds,omitempty"`
	// The page counts down to the start, then to the end.
	SaleStartsAt time.Time `json:"sale_starts_at"`
	SaleEndsAt   time.Time `json:"sale_ends_at"`
}

// Price is an amount of money.
type Price struct {
	Amount   int64  `json:"amount"`   // in the currency's smallest unit
	Currency string `json:"currency"` // ISO 4217, such as EUR
}

// policy lets the page load assets of its own server only.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; font-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

var contentTypes = map[string]string{
	".html": "text/html; charset=utf-8",
	".css":  "text/css; charset=utf-8",
	".js":   "text/javascript; charset=utf-8",
	".svg":  "image/svg+xml",
	".json": "application/json",
}

// asset is what an answer contains.
type asset struct {
	body             []byte
	contentType, tag string // tag is empty for what is not cached
}

// Handler serves the page at "/", its files beside it, and at "/config.json"
// what settings returns; an error of settings is answered with 503. The caller
// strips the path under which it serves the page.
func Handler(settings func(context.Context) (Settings, error)) (http.Handler, error) {
	assets, err := readAssets()
	if err != nil {
		return nil, err
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		protect(w.Header())
		name := strings.TrimPrefix(r.URL.Path, "/")
		if name == "" {
			name = "index.html"
		}
		found, isFile := assets[name]
		switch {
		case !isFile && name != configName:
			http.NotFound(w, r)
		case r.Method != http.MethodGet && r.Method != http.MethodHead:
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "only GET and HEAD", http.StatusMethodNotAllowed)
		case isFile:
			found.write(w, r)
		default:
			writeSettings(w, r, settings)
		}
	}), nil
}

// protect sets the headers of every answer, also of a refusal.
func protect(h http.Header) {
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
}

const configName = "config.json"

func writeSettings(w http.ResponseWriter, r *http.Request, settings func(context.Context) (Settings, error)) {
	s, err := settings(r.Context())
	if err != nil {
		http.Error(w, "the shop is closed", http.StatusServiceUnavailable)
		return
	}
	body, err := json.Marshal(s)
	if err != nil { // a time beyond the year 9999
		http.Error(w, "the settings cannot be encoded", http.StatusInternalServerError)
		return
	}
	asset{body: body, contentType: contentTypes[".json"]}.write(w, r)
}

func readAssets() (map[string]asset, error) {
	assets := map[string]asset{}
	entries, err := fs.ReadDir(files, ".")
	if err != nil {
		return nil, fmt.Errorf("read the files of the storefront: %w", err)
	}
	for _, entry := range entries {
		body, err := fs.ReadFile(files, entry.Name())
		if err != nil {
			return nil, fmt.Errorf("read a file of the storefront: %w", err)
		}
		sum := sha256.Sum256(body)
		assets[entry.Name()] = asset{body, contentTypes[path.Ext(entry.Name())], `"` + hex.EncodeToString(sum[:16]) + `"`}
	}
	return assets, nil
}

// write sends the asset, or 304 to a browser that has it already.
func (a asset) write(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	if a.tag != "" {
		h.Set("Cache-Control", "no-cache")
		h.Set("ETag", a.tag)
		if r.Header.Get("If-None-Match") == a.tag {
			w.WriteHeader(http.StatusNotModified)
			return
		}
	}
	h.Set("Content-Type", a.contentType)
	h.Set("Content-Length", fmt.Sprint(len(a.body)))
	if r.Method == http.MethodHead {
		return
	}
	_, _ = w.Write(a.body) // the browser may be gone
}
