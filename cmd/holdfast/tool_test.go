package main

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/holdfast/holdfast/client"
	"github.com/holdfast/holdfast/cmd/internal/boot"
	"github.com/holdfast/holdfast/cmd/internal/programtest"
	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/internal/tenants"
	"github.com/holdfast/holdfast/migrations"
)

// tool runs commands against a service.
type tool struct {
	t    *testing.T
	shop *programtest.Fixture
	env  map[string]string
}

func newTool(t *testing.T) *tool {
	t.Helper()
	shop := programtest.NewFixture(t)
	s := ready(t, programtest.Start(t, run, shop.Env(), "run").Stdout)
	return &tool{t, shop, shop.Env("HOLDFAST_URL", s.url, "HOLDFAST_KEY", s.key)}
}

// run runs a command that must succeed and returns its output.
func (c *tool) run(args ...string) string {
	c.t.Helper()
	stdout, stderr, err := programtest.Once(c.t, run, c.env, args...)
	if err != nil {
		c.t.Fatalf("%q: %v\n%s", args, err, stderr)
	}
	return stdout
}

// fail runs a command that must fail and returns its error.
func (c *tool) fail(args ...string) error {
	c.t.Helper()
	stdout, _, err := programtest.Once(c.t, run, c.env, args...)
	if err == nil {
		c.t.Fatalf("%q succeeded: %s", args, stdout)
	}
	return err
}

func (c *tool) object(args ...string) map[string]any {
	c.t.Helper()
	var fields map[string]any
	if err := json.Unmarshal([]byte(c.run(args...)), &fields); err != nil {
		c.t.Fatalf("%q: %v", args, err)
	}
	return fields
}

// expect compares some fields of a command's output.
func (c *tool) expect(want map[string]any, args ...string) {
	c.t.Helper()
	got := c.object(args...)
	chosen := cmpopts.IgnoreMapEntries(func(name string, _ any) bool { _, ok := want[name]; return !ok })
	if diff := cmp.Diff(want, got, chosen); diff != "" {
		c.t.Errorf("%q (-want +got):\n%s", args, diff)
	}
}

func TestStock(t *testing.T) {
	t.Parallel()
	c := newTool(t)
	c.expect(map[string]any{"variant_id": "rolls/buns", "stock": 10., "max_per_cart": 3., "hold_ttl_seconds": 60., "backorder": true},
		"stock", "set", "rolls/buns", "--stock", "10", "--max-per-cart", "3", "--hold-ttl-seconds", "60", "--backorder")
	c.expect(map[string]any{"stock": 10., "max_per_cart": nil, "hold_ttl_seconds": nil, "backorder": false},
		"stock", "set", "rolls/buns", "--max-per-cart", "0", "--hold-ttl-seconds", "0", "--no-backorder")
	c.expect(map[string]any{"stock": 7.}, "stock", "adjust", "rolls/buns", "--delta", "-3", "--reason", "damaged")
	c.expect(map[string]any{"available": 7., "tracked": true}, "stock", "get", "rolls/buns")
	c.expect(map[string]any{"tracked": false}, "stock", "set", "a/../b", "--no-tracked")

	file := filepath.Join(t.TempDir(), "stocks.csv")
	if err := os.WriteFile(file, []byte("variant_id,stock\na,1\nb,-5\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c.expect(map[string]any{"imported": 1., "rejected": 1.}, "stock", "import", file)
	list := c.run("stock", "list")
	for _, want := range []string{"VARIANT", "rolls/buns", "digital", "\na "} {
		if !strings.Contains(list, want) {
			t.Errorf("the list lacks %q:\n%s", want, list)
		}
	}
	if lines := strings.Count(c.run("stock", "list", "--json"), "\n"); lines != 3 {
		t.Errorf("%d lines of JSON for 3 variants", lines)
	}

	var problem *client.Error
	if err := c.fail("stock", "adjust", "rolls/buns", "--delta=-8"); !errors.As(err, &problem) || problem.Code != "invalid" && problem.Code != "below_reserved" {
		t.Errorf("adjust below 0: %v", err)
	}
	if err := c.fail("stock", "set", "..", "--stock", "1"); !errors.As(err, &problem) || problem.Status != 422 {
		t.Errorf("an id of dots: %v", err)
	}
	if err := c.fail("stock", "get", "nothing"); !errors.As(err, &problem) || problem.Status != 404 {
		t.Errorf("an unknown variant: %v", err)
	}
	var usage *boot.UsageError
	for _, args := range [][]string{{"stock", "set", "x", "--lane", "warm"}, {"stock", "set", "x", "--stock", "many"}, {"stock", "import", "stocks.txt"}, {"stock"}} {
		if err := c.fail(args...); !errors.As(err, &usage) {
			t.Errorf("%q: %v, want a usage error", args, err)
		}
	}
}

func TestStockListPages(t *testing.T) {
	t.Parallel()
	c := newTool(t)
	var file strings.Builder
	const variants = stockPage*2 + 1
	for i := range variants {
		file.WriteString(`{"variant_id":"v` + string(rune('a'+i%26)) + strings.Repeat("x", i/26) + `","stock":1}` + "\n")
	}
	name := filepath.Join(t.TempDir(), "stocks.ndjson")
	if err := os.WriteFile(name, []byte(file.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	c.expect(map[string]any{"imported": float64(variants)}, "stock", "import", name)
	if lines := strings.Count(c.run("stock", "list"), "\n"); lines != variants+1 {
		t.Errorf("%d lines for %d variants and the heading", lines, variants)
	}
}

func TestLanes(t *testing.T) {
	t.Parallel()
	c := newTool(t)
	c.expect(map[string]any{"lane": "normal", "paused": true}, "lanes", "pause", "normal")
	c.expect(map[string]any{"rate_cap": 100.}, "lanes", "cap", "hot", "100")
	list := c.run("lanes", "list")
	if bare := c.run("lanes"); !strings.HasPrefix(bare, "LANE") {
		t.Errorf("lanes without a subcommand:\n%s", bare)
	}
	if !strings.Contains(list, "paused") || !strings.Contains(list, "100") || strings.Count(list, "\n") != 3 {
		t.Errorf("lanes:\n%s", list)
	}
	c.expect(map[string]any{"paused": false}, "lanes", "resume", "normal")
	c.expect(map[string]any{"rate_cap": nil}, "lanes", "cap", "hot", "0")
	c.run("stock", "set", "ticket", "--stock", "5")
	c.expect(map[string]any{"lane": "hot"}, "lanes", "pin", "ticket")
	if n := c.shop.Int(`SELECT count(*) FROM hot_variants WHERE pinned`); n != 1 {
		t.Errorf("%d pinned variants, want 1", n)
	}
	if list := c.run("lanes", "list"); !strings.Contains(list, "\nticket") || !strings.Contains(list, "pinned") {
		t.Errorf("lanes:\n%s", list)
	}
	c.expect(map[string]any{"lane": "auto"}, "lanes", "unpin", "ticket")
	if n := c.shop.Int(`SELECT count(*) FROM hot_variants WHERE pinned`); n != 0 {
		t.Errorf("%d pinned variants, want none", n)
	}
	var usage *boot.UsageError
	if err := c.fail("lanes", "pause", "cold"); !errors.As(err, &usage) {
		t.Errorf("an unknown lane: %v", err)
	}
}

// A key is printed alone, works only for its scopes and tenant, and can be
// revoked.
func TestKeys(t *testing.T) {
	t.Parallel()
	c := newTool(t)
	plaintext := strings.TrimSuffix(c.run("keys", "create", "till", "--scopes", "stock", "--tenant", "dev"), "\n")
	if !tenants.WellFormed(plaintext) {
		t.Fatalf("keys create printed %q, want a key alone", plaintext)
	}
	c.env["HOLDFAST_KEY"] = plaintext
	c.run("stock", "set", "x", "--stock", "1")
	var problem *client.Error
	if err := c.fail("lanes", "list"); !errors.As(err, &problem) || problem.Status != 403 {
		t.Errorf("beyond its scope: %v", err)
	}
	made := c.object("keys", "create", "--json", "--tenant", "other", "--create-tenant")
	c.env["HOLDFAST_KEY"] = made["key"].(string)
	if err := c.fail("stock", "get", "x"); !errors.As(err, &problem) || problem.Status != 404 {
		t.Errorf("another tenant's variant: %v", err)
	}

	var listed []struct {
		KeyID     string  `json:"key_id"`
		Name      string  `json:"name"`
		RevokedAt *string `json:"revoked_at"`
	}
	if err := json.Unmarshal([]byte(c.run("keys", "list", "--tenant", "dev", "--json")), &listed); err != nil || len(listed) != 2 || listed[0].Name != "till" {
		t.Fatalf("keys of dev: %+v, %v", listed, err)
	}
	c.run("keys", "revoke", listed[0].KeyID)
	if list := c.run("keys", "list", "--tenant", "dev"); strings.Count(list, "\n") != 3 || !strings.Contains(list, "hf_") || strings.Contains(list, plaintext) {
		t.Errorf("the list of keys:\n%s", list)
	}
	c.env["HOLDFAST_KEY"] = plaintext
	pgtest.Until(t, "the revoked key is refused", func() bool {
		_, _, err := programtest.Once(t, run, c.env, "stock", "get", "x")
		return errors.As(err, &problem) && problem.Status == 401
	})
	if err := c.fail("keys", "revoke", "01a1f8c7-993c-7910-b8ca-25f7672f8c85"); !errors.Is(err, tenants.ErrKeyNotFound) {
		t.Errorf("an unknown key: %v", err)
	}
	if err := c.fail("keys", "create", "--scopes", "all"); !strings.Contains(err.Error(), "must be cart, stock or ops") {
		t.Errorf("an unknown scope: %v", err)
	}
}

func TestVerifyAndMigrate(t *testing.T) {
	t.Parallel()
	shop := programtest.NewFixture(t)
	c := &tool{t, shop, shop.Env()}
	if out := c.run("verify"); !strings.Contains(out, "invariants hold") {
		t.Errorf("verify:\n%s", out)
	}
	shop.Stock("shirt", 2)
	if _, err := shop.DB.Exec(t.Context(), `UPDATE inventory_stocks SET reserved = 1`); err != nil {
		t.Fatal(err)
	}
	out, _, err := programtest.Once(t, run, c.env, "verify")
	if !errors.Is(err, boot.ErrFailed) || !strings.Contains(out, "BROKEN") || !strings.Contains(out, "shirt") {
		t.Errorf("a broken invariant: %v, want the row in\n%s", err, out)
	}
	out, _, err = programtest.Once(t, run, c.env, "verify", "--since", "1h", "--json")
	if !errors.Is(err, boot.ErrFailed) || !strings.Contains(out, `"name": "stock_reserved"`) || strings.Contains(out, "key_answered") {
		t.Errorf("what changed in the last hour: %v, want only checks of changes, and the row, in\n%s", err, out)
	}
	if out := c.run("verify", "--since", "1000000"); !strings.Contains(out, "invariants hold") {
		t.Errorf("after an audit id that was not drawn:\n%s", out)
	}
	if err := c.fail("verify", "--since", "yesterday"); !strings.Contains(err.Error(), "want an age such as 2h") {
		t.Errorf("an unknown time: %v", err)
	}
	if err := migrations.Down(t.Context(), shop.DB, nil); err != nil {
		t.Fatal(err)
	}
	if err := c.fail("verify"); !errors.Is(err, boot.ErrPending) {
		t.Errorf("without migrations: %v", err)
	}
	for _, want := range []string{"is migrated", "up to date"} {
		if out := c.run("migrate"); !strings.Contains(out, want) {
			t.Errorf("migrate: %q, want %q in it", out, want)
		}
	}
}

// These commands need no service.
func TestAlone(t *testing.T) {
	t.Parallel()
	c := &tool{t, nil, map[string]string{}}
	for want, args := range map[string][]string{
		"Usage: holdfast": {"--help"}, "stock adjust": {"help"}, "Usage: holdfast lanes": {"lanes", "-h"}, "holdfast ": {"version"}, `"openapi": "3.1.0"`: {"openapi"}, "--data=DIR": {"run", "--help"},
	} {
		if out := c.run(args...); !strings.Contains(out, want) {
			t.Errorf("%q prints %q, want %q in it", args, out, want)
		}
	}
	stdout, stderr, err := programtest.Once(t, run, c.env)
	var usage *boot.UsageError
	if !errors.As(err, &usage) || stdout != "" || !strings.Contains(stderr, "Usage: holdfast") {
		t.Errorf("without a command: %v, stdout %q, want a usage error and the help in stderr:\n%s", err, stdout, stderr)
	}
	for want, args := range map[string][]string{
		"HOLDFAST_KEY is not set":    {"lanes"},
		"DATABASE_URL is not set":    {"keys", "list"},
		"unexpected argument launch": {"launch"},
		"missing flags: --stock=N":   {"replay", "baskets.csv"},
	} {
		if err := c.fail(args...); !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q in it", args, err, want)
		}
	}
	c.env["HOLDFAST_KEY"] = "hf_L1DboXG8oCUp6bCO4WxcXNSRAkcroO7jhiUXRHZLV982pExr4"
	c.env["HOLDFAST_URL"] = "http://127.0.0.1:1"
	if err := c.fail("lanes", "list"); !strings.Contains(err.Error(), "nothing answers at http://127.0.0.1:1, which HOLDFAST_URL names") {
		t.Errorf("no service: %v", err)
	}
}
