package holdfast_test

import (
	"testing"
)

// TestArchitecture holds the whole module against the tables below. It reads
// source only: it needs no database and starts nothing. The rules themselves
// stand in architecture_rules_test.go and are tested on made-up files beside
// it.
func TestArchitecture(t *testing.T) {
	t.Parallel()
	tree, err := readTree(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, rule := range rules {
		t.Run(rule.name, func(t *testing.T) {
			t.Parallel()
			for _, finding := range rule.find(tree) {
				t.Error(finding)
			}
		})
	}
}

const module = "github.com/holdfast/holdfast"

// nestedModules are held to the rules of this module: they import its internal
// packages and have SQL for its schema.
var nestedModules = []string{"bench"}

// layers lists every package, lowest layer first. A package imports from the
// layers above its line only: neither from its own line nor from one below it.
// "x/..." means x and all packages below it, which may import each other.
var layers = [][]string{
	{"client"},
	{"internal/sleep", "internal/invalid"},
	{"internal/pg", "internal/horizon"},
	{"migrations", "internal/telemetry", "internal/pgdev", "internal/frames", "internal/secrettest", "internal/purge", "internal/auditrows"},
	{"internal/telemetry/export", "internal/groupcommit", "internal/pgtest", "internal/pgdev/cmd/withpg"},
	{"audit"},
	{"internal/unitrows", "internal/tokens"},
	{"internal/tenants"},
	{"internal/reservationrows", "postings"},
	{"internal/lanes", "reservations"},
	{"internal/inventory", "metered", "ratelimit"},
	{"requests"},
	{"internal/requestrows"},
	{"internal/checkouts"},
	{"internal/checkouts/callback"},
	{"internal/queues", "internal/signals"},
	{"internal/admission", "queues/hot", "queues/normal", "sweeper", "projections", "internal/live"},
	{"internal/ready", "verify"},
	{"internal/carts", "internal/ops", "internal/cells"},
	{"internal/wiring"},
	{"."},
	{"internal/testkit"},
	{"internal/httpapi", "internal/dashboard", "examples/storefront", "examples/tickets", "examples/courts", "examples/sidebyside"},
	{"internal/chaos/..."},
	{"bench/...", "chaos/..."},
	{"cmd/internal/..."},
	{"cmd/api", "cmd/worker", "cmd/oneshot", "cmd/holdfast"},
}

// confined lists the packages that alone may import a heavy dependency, or one
// with which a layer could do another layer's work. Tests may import anything.
var confined = []struct {
	path string   // an import path, or the beginning of one
	to   []string // packages; none: tests only
}{
	{"github.com/riverqueue/", []string{".", "migrations", "metered", "internal/queues", "queues/...", "internal/wiring", "cmd/...", "bench/..."}},
	{"riverqueue.com/riverui", []string{"cmd/..."}},
	{"github.com/danielgtaylor/huma/", []string{"internal/httpapi", "bench/baselines"}}, // the latter compares with a service on the same router
	{"github.com/pressly/goose/", []string{"migrations"}},
	{"github.com/coder/websocket", []string{"internal/live"}},
	{"github.com/redis/go-redis/", []string{"bench/baselines"}},
	{"github.com/alecthomas/kong", []string{"cmd/..."}},
	{"github.com/schollz/progressbar/", []string{"cmd/..."}},
	{"github.com/sethvargo/go-envconfig", []string{"cmd/..."}},
	{"github.com/prometheus/", []string{"internal/telemetry/export"}},
	{"go.opentelemetry.io/contrib/exporters/", []string{"internal/telemetry/export"}},
	{"go.opentelemetry.io/otel/exporters/", []string{"internal/telemetry/export"}},
	{"go.opentelemetry.io/otel/sdk", []string{"internal/telemetry/export", "internal/testkit"}},
	{module + "/internal/telemetry/export", []string{"cmd/..."}},
	{module + "/internal/pgdev", []string{"internal/pgtest", "internal/pgdev/...", "cmd/...", "bench/...", "internal/chaos/...", "chaos/...", "internal/cells"}},
	{module + "/internal/pgtest", []string{"internal/testkit", "cmd/internal/programtest"}},
	{module + "/internal/testkit", []string{"cmd/internal/programtest"}},
	{module + "/internal/secrettest", nil},
}

// lean lists the packages that another program can link with no other
// dependencies than Postgres and ids: the client, the kernel and the packages below
// it. Besides the standard library they import leanImports only.
var (
	lean        = []string{"client", "reservations", "internal/reservationrows", "internal/unitrows", "postings", "audit", "internal/auditrows", "internal/horizon", "internal/sleep", "internal/pg", "internal/invalid"}
	leanImports = []string{
		"github.com/jackc/pgx/v5", "github.com/jackc/puddle/v2", // pgx's pool, whose errors pg classifies
		"github.com/google/uuid",
		module + "/audit", module + "/internal/auditrows", module + "/internal/unitrows", module + "/internal/horizon", module + "/internal/invalid",
		module + "/internal/reservationrows", module + "/internal/sleep", module + "/internal/pg",
	}
)

// owners names the one package that writes each table.
var owners = map[string]string{
	"tenants":              "internal/tenants",
	"tenant_state":         "internal/tenants",
	"api_keys":             "internal/tenants",
	"idempotency_keys":     "internal/tenants",
	"audit_log":            "audit",
	"audit_subscriptions":  "audit",
	"reservations":         "internal/reservationrows",
	"reservation_marks":    "internal/reservationrows",
	"inventory_stocks":     "internal/inventory",
	"kits":                 "internal/inventory",
	"stock_groups":         "internal/inventory",
	"waiting_requests":     "internal/inventory",
	"allotments":           "internal/inventory",
	"postings":             "internal/unitrows",
	"expiring_tokens":      "internal/tokens",
	"budget_ledger":        "metered",
	"budget_rates":         "ratelimit",
	"budget_scopes":        "metered",
	"command_keys":         "metered",
	"reservation_requests": "internal/requestrows",
	"checkouts":            "internal/checkouts",
	"lane_slots":           "internal/lanes",
	"lane_loads":           "internal/lanes",
	"hot_variants":         "internal/lanes",
	"diverted_tenants":     "internal/lanes",
	"hot_signals":          "internal/signals",
	"hot_observations":     "queues/hot",
	"hot_detector":         "queues/hot",
	"projection_snapshots": "projections",
	"live_tickets":         "internal/live",
	"purge_mark":           "internal/purge",
	"products":             "examples/sidebyside",
	"orders":               "examples/sidebyside",
	"ticket_orders":        "examples/tickets",
	"clubs":                "examples/courts",
}

var (
	// ownersExempt may write any table: the schema, the move of a tenant, and the packages that test,
	// measure and inject faults.
	ownersExempt = []string{"migrations", "internal/pgtest", "internal/testkit", "bench/...", "internal/chaos/...", "chaos/...", "internal/cells"}
	// withoutSQL work through the packages below them only.
	withoutSQL = []string{"sweeper"}
	// withLevels say of each verb that joins the caller's transaction at which
	// isolation levels it is right.
	withLevels = []string{"internal/tenants", "internal/lanes", "internal/inventory", "ratelimit", "internal/requestrows", "internal/checkouts", "internal/queues", "queues/...", "internal/admission", "internal/carts", "internal/live"}
	// withoutClock compare deadlines by the database's clock only.
	withoutClock = []string{"audit", "internal/reservationrows", "reservations", "internal/inventory", "internal/unitrows", "postings", "internal/checkouts", "metered", "internal/tokens", "ratelimit"}
	// withEnvironment may read environment variables: programs, examples, the
	// private Postgres (where its binaries are), and the OTEL_* that the OpenTelemetry
	// specification defines.
	withEnvironment = []string{"cmd/...", "examples/tickets", "examples/courts", "internal/pgdev/...", "internal/pgtest", "internal/telemetry/export"}
)

// budgets bound what several files say together, in lines without tests.
var budgets = []struct {
	name  string
	files []string // patterns of path.Match
	lines int
}{
	{"group admission, drain and decide", []string{"internal/admission/commit*.go", "internal/queues/drain*.go", "internal/inventory/decide*.go"}, 600},
}

const (
	fileLines     = 400
	testFileLines = 800
	functionLines = 70
	mainLines     = 40
)

// drawers are package names under which anything could be put, so everything
// would be. A name that ends in one of drawerSuffixes is a drawer too.
var (
	drawers        = []string{"base", "common", "core", "data", "helper", "helpers", "lib", "manager", "misc", "models", "shared", "types", "util", "utils"}
	drawerSuffixes = []string{"util", "utils", "helper", "helpers"}
)
