package pgdev

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// DefaultSettings returns the settings of a private server: durable as in
// production, sized for two cores, with few log messages. The caller may change
// the returned map.
func DefaultSettings() map[string]string {
	return map[string]string{
		// Durable: the programs refuse a database without these.
		"fsync":              "on",
		"full_page_writes":   "on",
		"synchronous_commit": "on",
		// Memory and connections for the API, workers and tests at the same
		// time.
		"shared_buffers":  "256MB",
		"max_connections": "500",
		// For programs and tests that prepare transactions.
		"max_prepared_transactions": "10",
		// Few checkpoints, so that a run of a minute or two is not measured in
		// the middle of one.
		"max_wal_size":       "4GB",
		"min_wal_size":       "512MB",
		"checkpoint_timeout": "15min",
		"wal_buffers":        "16MB",
		// Short statements on fast storage.
		"jit":              "off",
		"random_page_cost": "1.1",
		"autovacuum":       "on",
		// The same on every machine, whatever its locale and time zone.
		"timezone":     "UTC",
		"log_timezone": "UTC",
		"lc_messages":  "C",
		// The log goes to Options.Log.
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

// walCompression is lz4 if the server was built with it, else off. The built-in
// method costs more time than it saves: cloning a database through the log
// takes two thirds longer with it.
func walCompression(ctx context.Context, p programs, h *home) string {
	cmd := p.command(h, "postgres", "-D", h.data, "-C", "wal_compression", "-c", "wal_compression=lz4")
	if err := run(ctx, cmd); err != nil {
		return "off"
	}
	return "lz4"
}
