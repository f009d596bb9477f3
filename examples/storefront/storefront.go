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
	// Kit is a set with one unit of VariantID that the page offers too, nil for
	// none.
	Kit *Kit `json:"kit,omitempty"`
	// ExtendSeconds is by how much the page extends a hold; 0 for its default.
	ExtendSeconds int32 `json:"extend_seconds,omitempty"`
	// The page counts down to the start, then to the end.
	SaleStartsAt time.Time `json:"sale_starts_at"`
	SaleEndsAt   time.Time `json:"sale_ends_at"`
}

// Kit is a set of products that is sold as one: KitID is the API's, the others are
// how the page shows it.
type Kit struct {
	KitID string `json:"kit_id"`
	Name  string `json:"name"`
	About string `json:"about"`
	Price Price  `json:"price"`
}

// Price is an amount of money.
type Price struct {
	Amount   int64  `json:"amount"`   // in the currency's smallest unit
	Currency string `json:"currency"` // ISO 4217, such as EUR
}

// policy lets the page load assets of its own server only.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; font-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// Handler serves the page at "/", its files beside it, and at "/config.json"
// what settings returns; an error of settings is answered with 503. The caller
// strips the path under which it serves the page.
func Handler(settings func(context.Context) (Settings, error)) (http.Handler, error) {
	tag, err := version()
	if err != nil {
		return nil, err
	}
	pages := http.FileServerFS(files)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		protect(w.Header())
		switch {
		case r.Method != http.MethodGet && r.Method != http.MethodHead:
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "only GET and HEAD", http.StatusMethodNotAllowed)
		case r.URL.Path == "/config.json":
			writeSettings(w, r, settings)
		default:
			w.Header().Set("Cache-Control", "no-cache")
			w.Header().Set("ETag", tag)
			pages.ServeHTTP(w, r)
		}
	}), nil
}

// version is the entity tag of all files: it changes if one of them does.
func version() (string, error) {
	sum := sha256.New()
	err := fs.WalkDir(files, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		body, err := fs.ReadFile(files, name)
		sum.Write(body)
		return err
	})
	if err != nil {
		return "", fmt.Errorf("read the files of the storefront: %w", err)
	}
	return `"` + hex.EncodeToString(sum.Sum(nil)[:16]) + `"`, nil
}

// protect sets the headers of every answer, also of a refusal.
func protect(h http.Header) {
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
}

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
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(body) // the browser may be gone
}
