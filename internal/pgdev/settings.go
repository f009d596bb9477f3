package pgdev

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// DefaultSettings are what a private server runs with: durable as in production, sized for two cores, quiet. The
// caller may change the returned map.
func DefaultSettings() map[string]string {
	return map[string]string{
		// Durable: the programs refuse a database without these.
		"fsync":              "on",
		"full_page_writes":   "on",
		"synchronous_commit": "on",
		// Memory and connections: API, workers and tests beside each other.
		"shared_buffers":  "256MB",
		"max_connections": "200",
		// For those who prepare transactions, and the tests that do.
		"max_prepared_transactions": "10",
		// Few checkpoints, so that a run of a minute or two is not measured in the middle of one.
		"max_wal_size":       "4GB",
		"min_wal_size":       "512MB",
		"checkpoint_timeout": "15min",
		"wal_buffers":        "16MB",
		// Short statements on fast storage.
		"jit":              "off",
		"random_page_cost": "1.1",
		"autovacuum":       "on",
		// The same everywhere, whatever the machine's locale and zone.
		"timezone":     "UTC",
		"log_timezone": "UTC",
		"lc_messages":  "C",
		// Everything goes to Options.Log.
		"logging_collector": "off",
		"log_destination":   "stderr",
		"log_min_messages":  "warning",
		"log_line_prefix":   "%m [%p] ",
	}
}

var reserved = []string{"port", "listen_addresses", "unix_socket_directories", "data_directory"}

func checkSettings(settings map[string]string) error {
	for name := range settings {
		if slices.Contains(reserved, strings.ToLower(name)) {
			return fmt.Errorf("setting %s of a private Postgres is chosen by Start and cannot be set", name)
		}
	}
	return nil
}

func mergeSettings(ctx context.Context, p programs, h *home, overrides map[string]string) map[string]string {
	settings := DefaultSettings()
	settings["wal_compression"] = walCompression(ctx, p, h)
	maps.Copy(settings, overrides)
	return settings
}

// walCompression is lz4 where the server was built with it. The built-in way costs more time than its bytes save: cloning
// a database through the log takes two thirds longer with it.
func walCompression(ctx context.Context, p programs, h *home) string {
	cmd := p.command(h, "postgres", "-D", h.data, "-C", "wal_compression", "-c", "wal_compression=lz4")
	if err := run(ctx, cmd); err != nil {
		return "off"
	}
	return "lz4"
}

func sortedKeys(m map[string]string) []string { return slices.Sorted(maps.Keys(m)) }
