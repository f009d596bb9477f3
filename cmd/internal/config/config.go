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

// Config is what the environment says, checked. docs/configuration.md tells what each variable is for.
type Config struct {
	Database Database
	Holds    Holds
	Sweep    Sweep
	Lanes    Lanes
	Detect   Detect
	Intake   Intake
	Metered  Metered
	Task     Task
	Client   Client

	// Port is where the API, or a worker's health checks, are served; 0 lets the system choose.
	Port     int   `env:"PORT, default=8080"`
	LogLevel Level `env:"LOG_LEVEL, default=info"`
	// LogFormat says how the log is written: json, or cloud, which is JSON as Google Cloud Logging reads it.
	LogFormat LogFormat `env:"LOG_FORMAT, default=json"`
	// Project is the Google Cloud project that traces belong to in the log.
	Project string `env:"GOOGLE_CLOUD_PROJECT"`
	// MetricsAddress is where /metrics is served, host:port or :port, instead of on PORT.
	MetricsAddress string `env:"METRICS_ADDRESS"`
	// StopWithin is how long a program takes to stop, at most.
	StopWithin time.Duration `env:"STOP_WITHIN, default=9s"`
}

// Database is the one Postgres.
type Database struct {
	URL         string `env:"DATABASE_URL"`
	AllowUnsafe bool   `env:"ALLOW_UNSAFE_DATABASE, default=false"`
	// WaitMax is how long a program waits at its start for a database that does not answer yet.
	WaitMax time.Duration `env:"DATABASE_WAIT_MAX, default=15s"`
	// Connections is how many a process holds at most for its calls; 0 is the program's own choice.
	Connections int `env:"DATABASE_CONNECTIONS, default=0"`
}

// Holds are the deadlines of holds.
type Holds struct {
	TTL         time.Duration `env:"HOLD_TTL, default=15m"`
	LifetimeMax time.Duration `env:"HOLD_LIFETIME_MAX, default=2h"`
}

// Sweep is when and how much maintenance is done.
type Sweep struct {
	Schedule         Schedule      `env:"SWEEP_SCHEDULE, default=@every 15s"`
	Batch            int           `env:"SWEEP_BATCH, default=500"`
	PurgeSchedule    Schedule      `env:"PURGE_SCHEDULE, default=@every 1m"`
	RequestRetention time.Duration `env:"REQUEST_RETENTION, default=168h"`
	// AuditRetention is how long the audit record is kept; 0 is for ever.
	AuditRetention time.Duration `env:"AUDIT_RETENTION, default=0"`
}

// Lanes is how requests are decided, and which of them by this process.
type Lanes struct {
	HotBatch          int           `env:"HOT_BATCH, default=2000"`
	HotConcurrency    int           `env:"HOT_CONCURRENCY, default=4"`
	NormalBatch       int           `env:"NORMAL_BATCH, default=500"`
	NormalConcurrency int           `env:"NORMAL_CONCURRENCY, default=2"`
	QueueAgeMax       time.Duration `env:"QUEUE_AGE_MAX, default=10m"`

	Served LaneNames `env:"WORKER_LANES, default=hot,normal"`
	// OneShot makes a worker drain a bounded batch and exit; OneShotMax bounds that, and every pass of the one-shot program.
	OneShot    bool          `env:"INVENTORY_WORKER_ONESHOT, default=false"`
	OneShotMax time.Duration `env:"ONESHOT_TIME_MAX, default=1m"`
}

// Intake is how requests are accepted.
type Intake struct {
	// DepthMax bounds what waits in a lane, TenantShare what one tenant may fill of it, in percent.
	DepthMax    int `env:"QUEUE_DEPTH_MAX, default=100000"`
	TenantShare int `env:"QUEUE_TENANT_SHARE, default=50"`
	// LineMax bounds the callers that wait for admission to one lane in this process.
	LineMax int `env:"ADMISSION_LINE_MAX, default=8192"`
}

// Task is this process's part of a job that several processes share; Cloud Run sets it.
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

// Load reads and checks the environment. The error names the variable, what it must be and what it is; of several that
// are out of range it names each, one a line.
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

// lastLookup takes an empty value for none, and remembers what was read last: when a value cannot be decoded, that one.
type lastLookup struct {
	inner       envconfig.Lookuper
	name, value string
}

func (l *lastLookup) Lookup(name string) (string, bool) {
	value, found := l.inner.Lookup(name)
	l.name, l.value = name, value
	return value, found && value != ""
}

// ruleError is what a value must be, said by the type that could not read it.
type ruleError string

func (e ruleError) Error() string { return string(e) }

// requirement says what the value that could not be decoded must be.
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
