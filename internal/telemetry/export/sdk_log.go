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

// sdkLog is the SDK's own log. The SDK logs a variable that it cannot read
// together with its value, which may be the key of a collector, and continues
// without it. This log writes no value, and turns errors about variables
// into an error of Setup. It is safe for concurrent use.
type sdkLog struct {
	mu      sync.Mutex
	serving bool
	invalid []string
}

var _ logr.LogSink = (*sdkLog)(nil)

// Init does nothing.
func (c *sdkLog) Init(logr.RuntimeInfo) {}

// Enabled is called for messages below errors only, which are not logged.
func (c *sdkLog) Enabled(int) bool { return false }

// Info does nothing.
func (c *sdkLog) Info(int, string, ...any) {}

// WithValues returns the same log.
func (c *sdkLog) WithValues(...any) logr.LogSink { return c }

// WithName returns the same log.
func (c *sdkLog) WithName(string) logr.LogSink { return c }

// Error keeps a message that comes during Setup, and logs a later one. It drops
// the error and the fields, because they contain values.
func (c *sdkLog) Error(_ error, message string, fields ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.serving {
		slog.Warn("telemetry failed", "error", message)
		return
	}
	variable := likelyVariables(message)
	if i := slices.Index(fields, any("environment variable")); i >= 0 && i+1 < len(fields) {
		variable = fmt.Sprint(fields[i+1])
	}
	if text := fmt.Sprintf("%s cannot be read (%s)", variable, message); !slices.Contains(c.invalid, text) {
		c.invalid = append(c.invalid, text)
	}
}

// end returns the errors so far as one error, or nil. Later errors are
// logged.
func (c *sdkLog) end() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.serving = true
	if len(c.invalid) == 0 {
		return nil
	}
	return errors.New(strings.Join(c.invalid, "; "))
}

// endings are the suffixes of the variables that the SDK's messages with these
// words are about.
var endings = map[string][]string{
	"header": {"HEADERS"}, "url": {"ENDPOINT"}, "duration": {"TIMEOUT"}, "tls": {"CERTIFICATE", "CLIENT_CERTIFICATE", "CLIENT_KEY"},
}

// likelyVariables returns the variables that are set and that the SDK's message
// may be about.
func likelyVariables(message string) string {
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
