package holdfast_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
)

// A case shows one rule a tree of made-up files. Each text in want is a part of
// one finding, in order. Every rule has a case in which it reports a finding,
// so that a rule that no longer works fails the test.
var cases = []struct {
	rule  string // a part of the rule's name
	files map[string]string
	want  []string
}{
	// Layers.
	{"its layer", map[string]string{"requests/a.go": imports("requests", module+"/internal/inventory", "context")}, nil},
	{"its layer", map[string]string{"internal/inventory/a.go": imports("inventory", module+"/requests")}, []string{"internal/inventory/a.go imports requests, which is above it"}},
	{"its layer", map[string]string{"queues/hot/a.go": imports("hot", module+"/queues/normal")}, []string{"imports its sibling queues/normal"}},
	{"its layer", map[string]string{"internal/queues/a.go": imports("queues", module+"/queues/hot")}, []string{"queues/hot, which is above it"}},
	{"its layer", map[string]string{"stray/a.go": "package stray"}, []string{"package stray has no line"}},
	{"its layer", map[string]string{"cmd/api/a.go": imports("main", module+"/cmd/internal/wire", module+"/stray")}, []string{"imports stray, which has no line"}},
	{"its layer", map[string]string{"cmd/internal/a/a.go": imports("a", module+"/cmd/internal/b")}, nil},
	{"its layer", map[string]string{"internal/inventory/a_test.go": imports("inventory_test", module+"/requests")}, nil},

	// Heavy packages.
	{"heavy", map[string]string{"queues/hot/a.go": imports("hot", "github.com/riverqueue/river")}, nil},
	{"heavy", map[string]string{"requests/a.go": imports("requests", "github.com/riverqueue/river/rivertype")}, []string{"requests/a.go imports github.com/riverqueue/river/rivertype"}},
	{"heavy", map[string]string{"requests/a.go": "package requests\nimport _ \"github.com/riverqueue/river\""}, []string{"river"}},
	{"heavy", map[string]string{"cmd/api/a.go": imports("main", "github.com/danielgtaylor/huma/v2")}, []string{"huma"}},
	{"heavy", map[string]string{"internal/httpapi/a.go": imports("httpapi", "github.com/danielgtaylor/huma/v2", "github.com/sethvargo/go-envconfig")}, []string{"envconfig"}},
	{"heavy", map[string]string{"internal/httpapi/a.go": imports("httpapi", module+"/internal/telemetry", module+"/internal/telemetry/export")}, []string{"telemetry/export"}},
	{"heavy", map[string]string{"internal/telemetry/a.go": imports("telemetry", "go.opentelemetry.io/otel", "go.opentelemetry.io/otel/sdk/trace")}, []string{"otel/sdk/trace"}},
	{"heavy", map[string]string{"internal/inventory/a.go": imports("inventory", module+"/internal/pgtest")}, []string{"tests only"}},
	{"heavy", map[string]string{"internal/inventory/a_test.go": imports("inventory", module+"/internal/pgtest")}, nil},

	// The kernel.
	{"kernel", map[string]string{"reservations/a.go": imports("reservations", "time", "github.com/jackc/pgx/v5/pgxpool", "github.com/google/uuid", module+"/audit")}, nil},
	{"kernel", map[string]string{"reservations/a.go": imports("reservations", "go.opentelemetry.io/otel", module+"/internal/telemetry")}, []string{"imports " + module + "/internal/telemetry", "imports go.opentelemetry.io/otel:"}},
	{"kernel", map[string]string{"audit/a.go": imports("audit", "golang.org/x/sync/errgroup")}, []string{"errgroup"}},

	// The environment and the clock.
	{"environment", map[string]string{"internal/httpapi/a.go": "package httpapi\nimport \"os\"\nvar a = os.Getenv(\"PORT\")\n"}, []string{"internal/httpapi/a.go:3 uses os.Getenv"}},
	{"environment", map[string]string{"internal/queues/a.go": "package queues\nimport env \"os\"\nfunc a() { b, _ := env.LookupEnv(\"X\"); _ = b }\n"}, []string{"os.LookupEnv"}},
	{"environment", map[string]string{"cmd/api/a.go": "package main\nimport \"os\"\nvar a = os.Getenv(\"PORT\")\n"}, nil},
	{"deadlines", map[string]string{"internal/inventory/a.go": "package inventory\nimport \"time\"\nvar a = time.Now()\n"}, []string{"time.Now"}},
	{"deadlines", map[string]string{"internal/inventory/a.go": "package inventory\nimport \"time\"\nvar a = time.Second\n"}, nil},

	// Tables.
	{"writes each table", map[string]string{"internal/inventory/a.go": sql("inventory", "UPDATE inventory_stocks SET reserved = 1")}, nil},
	{"writes each table", map[string]string{"internal/lanes/a.go": sql("lanes", "WITH a AS (\n    UPDATE inventory_stocks SET reserved = 1\n)\nINSERT INTO lane_slots SELECT")}, []string{"internal/lanes/a.go:2 writes inventory_stocks, which only package internal/inventory may"}},
	{"writes each table", map[string]string{"internal/httpapi/a.go": sql("httpapi", "DELETE\nFROM reservations")}, []string{"only package internal/reservationrows may"}},
	{"writes each table", map[string]string{"internal/requestrows/a.go": sql("requestrows", "INSERT INTO carts VALUES (1)")}, []string{"carts, a table without an owner"}},
	{"writes each table", map[string]string{"internal/requestrows/a.go": sql("requestrows", "INSERT INTO reservation_requests VALUES (1)\nON CONFLICT (a) DO UPDATE SET a = 1")}, nil},
	{"writes each table", map[string]string{"internal/requestrows/a.go": sql("requestrows", "SELECT 1 FROM inventory_stocks FOR NO KEY UPDATE OF inventory_stocks")}, nil},
	{"writes each table", map[string]string{"internal/requestrows/a.go": "package requestrows\nfunc a() { tx.CopyFrom(ctx, pgx.Identifier{\"audit_log\"}, columns, rows) }\n"}, []string{"audit_log"}},
	{"writes each table", map[string]string{"internal/queues/a_test.go": sql("queues", "DELETE FROM reservations")}, nil},
	{"writes each table", map[string]string{"migrations/a.go": sql("migrations", "INSERT INTO lane_slots VALUES (1)")}, nil},
	{"SQL names", map[string]string{"internal/requestrows/a.go": sql("requestrows", "SELECT 1 FROM inventory_stocks JOIN reservation_requests USING (tenant_id)")}, nil},
	{"SQL names", map[string]string{"internal/requestrows/a.go": sql("requestrows", "SELECT 1 FROM reservation_requests, hot_signals")}, []string{"internal/requestrows/a.go:2 names hot_signals, a table of package internal/signals, which is not below it"}},
	{"SQL names", map[string]string{"internal/inventory/a.go": sql("inventory", "SELECT 1 FROM budget_ledger")}, []string{"budget_ledger"}},
	{"SQL names", map[string]string{"internal/inventory/a.go": sql("inventory", "read from hot_variants")}, nil},
	{"no SQL", map[string]string{"sweeper/a.go": sql("sweeper", "SELECT 1")}, []string{"sweeper/a.go:2 holds SQL"}},
	{"no SQL", map[string]string{"sweeper/a.go": sql("sweeper", "selected")}, nil},

	// Isolation levels.
	{"isolation levels", map[string]string{"internal/requestrows/a.go": "package requestrows\n\n// CheckoutTx is Checkout in the caller's transaction. It must be READ\n// COMMITTED.\nfunc CheckoutTx() {}\nfunc lockTx() {}\n"}, nil},
	{"isolation levels", map[string]string{"queues/hot/a.go": "package hot\n\n// PinTx is Pin in the caller's transaction.\nfunc PinTx() {}\n"}, []string{"PinTx does not say"}},

	// Documentation and names.
	{"has a doc.go", map[string]string{"audit/doc.go": "// Package audit owns the record.\npackage audit\n", "audit/a.go": "package audit", "b/b_test.go": "package b"}, nil},
	{"has a doc.go", map[string]string{"audit/a.go": "package audit"}, []string{"package audit has no doc.go"}},
	{"has a doc.go", map[string]string{"audit/doc.go": "// The audit.\npackage audit"}, []string{`audit/doc.go does not begin with "// Package audit "`}},
	{"has a doc.go", map[string]string{"cmd/api/doc.go": "// Package main serves.\npackage main"}, []string{`"// Command api "`}},
	{"has a doc.go", map[string]string{"cmd/api/doc.go": "// Command api serves.\npackage main"}, nil},
	{"drawer", map[string]string{"internal/util/a.go": "package pg", "internal/a/a.go": "package testhelpers", "audit/a.go": "package audit"}, []string{"called testhelpers", "called util"}},

	// Length.
	{"short", map[string]string{"audit/a.go": "package audit" + strings.Repeat("\n", 400), "audit/a_test.go": "package audit" + strings.Repeat("\n", 800)}, nil},
	{"short", map[string]string{"audit/a.go": "package audit" + strings.Repeat("\n", 401)}, []string{"401 lines, at most 400"}},
	{"short", map[string]string{"audit/a.go": "// Code generated by a; DO NOT EDIT.\n\npackage audit" + strings.Repeat("\n", 401)}, nil},
	{"short", map[string]string{"audit/a_test.go": "package audit" + strings.Repeat("\n", 801)}, []string{"801 lines, at most 800"}},
	{"short", map[string]string{"audit/a.go": "package audit\n" + function("a", 70) + function("b", 71)}, []string{"audit/a.go:72: b has 71 lines, at most 70"}},
	{"short", map[string]string{"cmd/api/a.go": "package main\n" + function("main", 41)}, []string{"main has 41 lines, at most 40"}},
	{"budgets", map[string]string{"internal/admission/commit.go": "package admission" + strings.Repeat("\n", 300), "internal/queues/drain_normal.go": "package queues" + strings.Repeat("\n", 300), "internal/queues/drain_test.go": "package queues\n"}, nil},
	{"budgets", map[string]string{"internal/admission/commit.go": "package admission" + strings.Repeat("\n", 300), "internal/inventory/decide.go": "package inventory" + strings.Repeat("\n", 301)}, []string{"601 lines"}},
	{"budgets", map[string]string{"internal/queues/claim.go": "package queues"}, []string{"no file matches internal/queues/drain*.go"}},

	// Tests.
	{"sleep", map[string]string{"audit/a_test.go": "package audit\nimport \"time\"\nfunc a() { time.Sleep(1) }\n"}, []string{"audit/a_test.go:3 uses time.Sleep"}},
	{"sleep", map[string]string{"audit/a.go": "package audit\nimport \"time\"\nfunc a() { time.Sleep(1) }\n"}, nil},
	{"sleep", map[string]string{"audit/a_test.go": "package audit\nimport \"testing\"\nfunc a(t *testing.T) { t.Skip(\"no database\") }\n"}, []string{"audit/a_test.go:3 skips"}},
	{"duration", map[string]string{"audit/a_test.go": timed("if time.Since(began) > time.Second { panic(0) }")}, []string{"audit/a_test.go:4 compares"}},
	{"duration", map[string]string{"audit/a_test.go": timed("for time.Since(began).Seconds() <= 3 {}")}, []string{"compares"}},
	{"duration", map[string]string{"audit/a_test.go": timed("if d := time.Since(began); 1 < 2 && limit >= d { panic(0) }")}, []string{"compares"}},
	{"duration", map[string]string{"audit/a_test.go": timed("worst = max(worst, time.Since(began)); if worst > limit { panic(0) }")}, []string{"compares"}},
	{"duration", map[string]string{"audit/a_test.go": timed("if took := end.Sub(began); took < limit { panic(0) }")}, []string{"compares"}},
	{"duration", map[string]string{"audit/a_test.go": timed("println(time.Since(began)); if end.Sub(expiry) > limit { panic(0) }")}, nil},
	{"duration", map[string]string{"audit/a_test.go": timed("synctest.Test(t, func(*testing.T) { if time.Since(began) > limit { panic(0) } })")}, nil},
	{"duration", map[string]string{"audit/a.go": timed("if time.Since(began) > limit { panic(0) }")}, nil},
	{"sleep", map[string]string{"internal/pgtest/a.go": "package pgtest\nimport \"testing\"\nfunc a(tb testing.TB) { tb.SkipNow() }\n"}, []string{"skips"}},
}

func TestRules(t *testing.T) {
	t.Parallel()
	finds := map[string]bool{}
	for i, tc := range cases {
		for _, rule := range rules {
			if !strings.Contains(rule.name, tc.rule) {
				continue
			}
			t.Run(fmt.Sprintf("%d %s", i, rule.name), func(t *testing.T) {
				t.Parallel()
				assertFindings(t, rule.find(tree(t, tc.files)), tc.want)
			})
			finds[rule.name] = finds[rule.name] || len(tc.want) > 0
		}
	}
	for _, rule := range rules {
		if !finds[rule.name] {
			t.Errorf("no case shows that the rule %q can fail", rule.name)
		}
	}
}

// TestReadTree shows that the rules are shown the module: this very file is in
// it, and of the nested modules only bench.
func TestReadTree(t *testing.T) {
	t.Parallel()
	tree, err := readTree(".")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, f := range tree {
		seen[f.path] = true
		if strings.HasPrefix(f.path, "tools/") || strings.HasPrefix(f.path, "cloudrun/check/") {
			t.Errorf("%s of a nested module was read", f.path)
		}
	}
	for _, want := range []string{"doc.go", "architecture_cases_test.go", "migrations/migrations.go", "bench/main.go"} {
		if !seen[want] {
			t.Errorf("%s was not read", want)
		}
	}
}

func assertFindings(t *testing.T, got, want []string) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("found %q, want %q", got, want)
	}
	for i := range want {
		if !strings.Contains(got[i], want[i]) {
			t.Errorf("found %q, want it to say %q", got[i], want[i])
		}
	}
}

func tree(t *testing.T, files map[string]string) (tree []source) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(files)) {
		f, err := parse(name, []byte(files[name]))
		if err != nil {
			t.Fatal(err)
		}
		tree = append(tree, f)
	}
	return tree
}

func imports(name string, paths ...string) string {
	text := "package " + name + "\n"
	for _, p := range paths {
		text += fmt.Sprintf("import %q\n", p)
	}
	return text
}

func sql(name, statement string) string {
	return "package " + name + "\nconst a = `" + statement + "`\n"
}

func timed(statements string) string {
	return "package audit\nimport (\"testing/synctest\"; \"time\")\nfunc a() {\n" + statements + "\n}\n"
}

func function(name string, lines int) string {
	return "func " + name + "() {" + strings.Repeat("\n", lines-1) + "}\n"
}
