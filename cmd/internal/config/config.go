package config

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"github.com/sethvargo/go-envconfig"
)

// Config is the checked environment. docs/configuration.md describes each
// variable.
type Config struct {
	Database Database
	Holds    Holds
	Sweep    Sweep
	Lanes    Lanes
	Detect   Detect
	Intake   Intake
	Metered  Metered
	Checkout Checkout
	Live     Live
	Task     Task
	Client   Client

	// Projections lets a worker fold the audit log into the ready projections.
	Projections bool `env:"PROJECTIONS, default=true"`

	// Port is where the API, or a worker's health checks, are served; 0 lets
	// the system choose.
	Port     int   `env:"PORT, default=8080"`
	LogLevel Level `env:"LOG_LEVEL, default=info"`
	// LogFormat is the form of the log: json, or cloud, which is JSON as Google
	// Cloud Logging reads it.
	LogFormat LogFormat `env:"LOG_FORMAT, default=json"`
	// Project is the Google Cloud project that traces belong to in the log.
	Project string `env:"GOOGLE_CLOUD_PROJECT"`
	// MetricsAddress is where /metrics is served, host:port or :port, instead
	// of on PORT.
	MetricsAddress string `env:"METRICS_ADDRESS"`
	// Dashboard serves the operator's page at /ops/.
	Dashboard bool `env:"DASHBOARD, default=true"`
	// StopWithin is how long a program takes to stop, at most.
	StopWithin time.Duration `env:"STOP_WITHIN, default=9s"`
}

// Database is the one Postgres, or the several that are cells.
type Database struct {
	URL string `env:"DATABASE_URL"`
	// Cells is the list that ParseCells reads; empty: DATABASE_URL is the only
	// cell.
	Cells       string `env:"CELLS"`
	AllowUnsafe bool   `env:"ALLOW_UNSAFE_DATABASE, default=false"`
	// WaitMax is how long a program waits at its start for a database that does
	// not answer yet.
	WaitMax time.Duration `env:"DATABASE_WAIT_MAX, default=15s"`
	// Connections is the maximum number of connections of a process for its
	// calls; 0 lets the program choose.
	Connections int `env:"DATABASE_CONNECTIONS, default=0"`
}

// Holds are the deadlines of holds.
type Holds struct {
	TTL         time.Duration `env:"HOLD_TTL, default=15m"`
	LifetimeMax time.Duration `env:"HOLD_LIFETIME_MAX, default=2h"`
}

// Sweep is the schedules and limits of maintenance.
type Sweep struct {
	Schedule         Schedule      `env:"SWEEP_SCHEDULE, default=@every 15s"`
	Batch            int           `env:"SWEEP_BATCH, default=500"`
	PurgeSchedule    Schedule      `env:"PURGE_SCHEDULE, default=@every 1m"`
	RequestRetention time.Duration `env:"REQUEST_RETENTION, default=168h"`
	// AuditRetention is how long the audit record is kept; 0 is for ever.
	AuditRetention time.Duration `env:"AUDIT_RETENTION, default=0"`
}

// Intake is how requests are accepted.
type Intake struct {
	// DepthMax bounds the requests that wait in a lane. TenantShare is the part
	// of it that one tenant may fill, in percent.
	DepthMax    int `env:"QUEUE_DEPTH_MAX, default=100000"`
	TenantShare int `env:"QUEUE_TENANT_SHARE, default=50"`
	// QueueMax bounds the callers that wait for admission to one lane in this
	// process.
	QueueMax int `env:"ADMISSION_QUEUE_MAX, default=8192"`
}

// Task is this process's part of a job that several processes share; Cloud Run
// sets it.
type Task struct {
	Index int `env:"CLOUD_RUN_TASK_INDEX, default=0"`
	Count int `env:"CLOUD_RUN_TASK_COUNT, default=1"`
}

// Client is how the operator's tool reaches the API.
type Client struct {
	URL string `env:"HOLDFAST_URL, default=http://localhost:8080"`
	Key string `env:"HOLDFAST_KEY"`
}

// Level is a level of the log.
type Level slog.Level

// EnvDecode reads debug, info, warn or error, in any case.
func (l *Level) EnvDecode(value string) error {
	if err := (*slog.Level)(l).UnmarshalText([]byte(value)); err != nil {
		return ruleError("must be debug, info, warn or error")
	}
	return nil
}

// LogFormat is how the log is written.
type LogFormat string

// The formats of the log.
const (
	JSONLog  LogFormat = "json"
	CloudLog LogFormat = "cloud"
)

// EnvDecode reads json or cloud.
func (f *LogFormat) EnvDecode(value string) error {
	*f = LogFormat(value)
	if *f != JSONLog && *f != CloudLog {
		return ruleError("must be json or cloud")
	}
	return nil
}

// Load reads and checks the environment. The error names the variable, its
// requirement and its value. If several values are out of range, the error has
// a line for each.
func Load(ctx context.Context, env envconfig.Lookuper) (Config, error) {
	seen := &lastLookup{inner: env}
	var c Config
	if err := envconfig.ProcessWith(ctx, &envconfig.Config{Target: &c, Lookuper: seen}); err != nil {
		return Config{}, fmt.Errorf("%s %s, not %q", seen.name, requirement(err), seen.value)
	}
	if err := c.check(); err != nil {
		return Config{}, err
	}
	return c, nil
}

// lastLookup treats an empty value as unset, and remembers the last lookup: if
// a value cannot be decoded, it is that one.
type lastLookup struct {
	inner       envconfig.Lookuper
	name, value string
}

func (l *lastLookup) Lookup(name string) (string, bool) {
	value, found := l.inner.Lookup(name)
	l.name, l.value = name, value
	return value, found && value != ""
}

// ruleError is the requirement on a value, reported by the type that could not
// decode it.
type ruleError string

func (e ruleError) Error() string { return string(e) }

// requirement returns what the value that could not be decoded must be.
func requirement(err error) string {
	var rule ruleError
	var number *strconv.NumError
	switch {
	case errors.As(err, &rule):
		return string(rule)
	case errors.As(err, &number) && number.Func == "ParseBool":
		return "must be true or false"
	case errors.As(err, &number):
		return "must be a whole number"
	default: // the one type left
		return "must be a duration such as 90s, 15m or 168h"
	}
}
