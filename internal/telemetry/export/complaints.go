package export

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/go-logr/logr"
)

// complaints is the SDK's own log. The SDK logs a variable that it cannot read together with its value, which may be the key
// of a collector, and goes on without it. Here no value is logged, and complaints about variables become an error of Setup.
// It is safe for concurrent use.
type complaints struct {
	mu      sync.Mutex
	serving bool
	about   []string
}

var _ logr.LogSink = (*complaints)(nil)

// Init does nothing.
func (c *complaints) Init(logr.RuntimeInfo) {}

// Enabled leaves out all but errors.
func (c *complaints) Enabled(int) bool { return false }

// Info does nothing.
func (c *complaints) Info(int, string, ...any) {}

// WithValues is the same log.
func (c *complaints) WithValues(...any) logr.LogSink { return c }

// WithName is the same log.
func (c *complaints) WithName(string) logr.LogSink { return c }

// Error keeps an error of Setup, and logs a later one. The error and the fields contain values.
func (c *complaints) Error(_ error, message string, fields ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.serving {
		slog.Warn("telemetry failed", "error", message)
		return
	}
	variable := suspects(message)
	if i := slices.Index(fields, any("environment variable")); i >= 0 && i+1 < len(fields) {
		variable = fmt.Sprint(fields[i+1])
	}
	if text := fmt.Sprintf("%s cannot be read (%s)", variable, message); !slices.Contains(c.about, text) {
		c.about = append(c.about, text)
	}
}

// end returns what was complained of so far as an error, or nil. What comes later is logged.
func (c *complaints) end() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.serving = true
	if len(c.about) == 0 {
		return nil
	}
	return errors.New(strings.Join(c.about, "; "))
}

// endings are how the names of variables end that the SDK's messages with these words are about.
var endings = map[string][]string{
	"header": {"HEADERS"}, "url": {"ENDPOINT"}, "duration": {"TIMEOUT"}, "tls": {"CERTIFICATE", "CLIENT_CERTIFICATE", "CLIENT_KEY"},
}

// suspects names the variables that are set and that the SDK's message may be about.
func suspects(message string) string {
	var names []string
	for word, ends := range endings {
		if !strings.Contains(message, word) {
			continue
		}
		for _, end := range ends {
			for _, signal := range []string{"", "TRACES_", "METRICS_"} {
				if name := "OTEL_EXPORTER_OTLP_" + signal + end; os.Getenv(name) != "" {
					names = append(names, name)
				}
			}
		}
	}
	if len(names) == 0 {
		return "a variable OTEL_*"
	}
	slices.Sort(names)
	return strings.Join(names, " or ")
}
