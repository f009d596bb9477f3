package config_test

import (
	"maps"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/sethvargo/go-envconfig"

	"github.com/holdfast/holdfast/cmd/internal/config"
)

func load(t *testing.T, env map[string]string) (config.Config, error) {
	t.Helper()
	return config.Load(t.Context(), envconfig.MapLookuper(env))
}

func TestDefaults(t *testing.T) {
	t.Parallel()
	c, err := load(t, map[string]string{"HOLD_TTL": ""}) // an empty value counts as not set
	if err != nil {
		t.Fatal(err)
	}
	got := []any{
		c.Port, c.Holds.TTL, c.Holds.LifetimeMax, c.Sweep.Schedule.String(), c.Sweep.Batch, c.Sweep.RequestRetention,
		c.Lanes.Served, c.Lanes.OneShot, c.Task.Count, c.Metered, c.Checkout,
	}
	want := []any{
		8080, 15 * time.Minute, 2 * time.Hour, "@every 15s", 500, 168 * time.Hour,
		config.LaneNames{"hot", "normal"}, false, 1, config.Metered{Retention: 168 * time.Hour},
		config.Checkout{TTL: 15 * time.Minute, CallbackTimeout: 10 * time.Second, CallbackConcurrency: 128},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("defaults (-want +got):\n%s", diff)
	}
}

func TestBudgets(t *testing.T) {
	t.Parallel()
	type budget = config.Budget
	for value, want := range map[string]budget{
		"":                 {},
		"600/1m":           {Limit: 600, Window: time.Minute},
		"1/1s":             {Limit: 1, Window: time.Second},
		"1000000000/24h":   {Limit: 1_000_000_000, Window: 24 * time.Hour},
		"007/1.5m":         {Limit: 7, Window: 90 * time.Second},
		"600":              {Limit: -1},
		"600/":             {Limit: -1},
		"/1m":              {Limit: -1},
		"0/1m":             {Limit: -1},
		"-5/1m":            {Limit: -1},
		"+5/1m":            {Limit: -1},
		"1000000001/1m":    {Limit: -1},
		"9999999999999/1m": {Limit: -1},
		"6e2/1m":           {Limit: -1},
		"600/1":            {Limit: -1},
		"600/-1m":          {Limit: -1},
		"600/999ms":        {Limit: -1},
		"600/1500ms":       {Limit: -1},
		"600/24h0m1s":      {Limit: -1},
		"600/1d":           {Limit: -1},
		"600 / 1m":         {Limit: -1},
		"600/1m/1m":        {Limit: -1},
	} {
		for _, name := range []string{"TENANT_BUDGET", "CUSTOMER_BUDGET"} {
			c, err := load(t, map[string]string{"METERED_COMMANDS_ENABLED": "true", name: value})
			if want.Limit < 0 {
				rule := name + ` must be a limit from 1 to 1000000000 and a window from 1s to 24h, in whole seconds, such as 600/1m, not "` + value + `"`
				if err == nil || err.Error() != rule {
					t.Errorf("%s=%s: %v\nwant %s", name, value, err, rule)
				}
				continue
			}
			got := map[string]budget{"TENANT_BUDGET": c.Metered.TenantBudget, "CUSTOMER_BUDGET": c.Metered.CustomerBudget}
			all := map[string]budget{"TENANT_BUDGET": {}, "CUSTOMER_BUDGET": {}}
			all[name] = want
			if diff := cmp.Diff(all, got); err != nil || diff != "" || !c.Metered.On {
				t.Errorf("%s=%s: on %t, %v (-want +got):\n%s", name, value, c.Metered.On, err, diff)
			}
		}
	}
}

func TestCells(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		url, cells string
		want       []config.Cell
	}{
		{"", "", nil},
		{"postgres://h/a", "", []config.Cell{{Name: "main", URL: "postgres://h/a"}}},
		{"", "eu=postgres://u:p@h/a", []config.Cell{{Name: "eu", URL: "postgres://u:p@h/a"}}},
		{"", "eu-1=postgres://h,i/a?x=y,z , us=postgresql://h/b", []config.Cell{{Name: "eu-1", URL: "postgres://h,i/a?x=y,z"}, {Name: "us", URL: "postgresql://h/b"}}},
		{"postgres://h/b", "eu=postgres://h/a,us=postgres://h/b", []config.Cell{{Name: "eu", URL: "postgres://h/a"}, {Name: "us", URL: "postgres://h/b"}}},
	} {
		c, err := load(t, map[string]string{"DATABASE_URL": tc.url, "CELLS": tc.cells})
		if err != nil {
			t.Errorf("%q: %v", tc.cells, err)
			continue
		}
		got, err := c.Database.List()
		if diff := cmp.Diff(tc.want, got); err != nil || diff != "" {
			t.Errorf("%q: %v (-want +got):\n%s", tc.cells, err, diff)
		}
	}
	if _, err := load(t, map[string]string{"DATABASE_URL": "postgres://h/c", "CELLS": "eu=postgres://h/a"}); err == nil || !strings.Contains(err.Error(), "CELLS does not list") {
		t.Errorf("%v, want a DATABASE_URL beside CELLS refused", err)
	}
}

// badSecret repeats nothing of the value.
const badOrigin = `LIVE_ORIGINS must list origins as browsers send them, https://host or https://host:port, separated by commas, not `

const badSecret = `CHECKOUT_CALLBACK_SECRET must be whsec_ and 24 to 64 bytes in base 64, and the value is not`

// The error of every invalid value is one sentence that names its variable, and
// never a panic.
func TestBadValues(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, value, want string }{
		{"PORT", "http", `PORT must be a whole number, not "http"`},
		{"PORT", "65536", `PORT must be between 0 and 65535, not 65536`},
		{"CELLS", "eu", `CELLS must be name=postgres://user:password@host:5432/database, several with commas between, and the value does not begin so`},
		{"CELLS", "postgres://a:secret@h/d", `CELLS must be name=postgres://user:password@host:5432/database, several with commas between, and the value does not begin so`},
		{"CELLS", "eu=postgres://h/a,EU=postgres://h/b", `CELLS must name each cell by 1 to 32 lower-case letters, digits and hyphens, with a letter first and no hyphen last, not "EU"`},
		{"CELLS", "eu=postgres://h/a,=postgres://h/b", `CELLS must name each cell by 1 to 32 lower-case letters, digits and hyphens, with a letter first and no hyphen last, not ""`},
		{"CELLS", "eu=postgres://h/a,eu=postgres://h/b", `CELLS names the cell eu twice`},
		{"CELLS", "eu=postgres://h/a,us=postgres://h/a", `CELLS gives the cells eu and us the same database`},
		{"CELLS", "eu=postgres://a:p/w@h/a", `CELLS, cell eu: must be postgres://user:password@host:5432/database: what follows postgres:// cannot be read; a special character of the password is written as %2F for /, %40 for @, %25 for % and so on`},
		{"HOLD_TTL", "15", `HOLD_TTL must be a duration such as 90s, 15m or 168h, not "15"`},
		{"HOLD_TTL", "7d", `HOLD_TTL must be a duration such as 90s, 15m or 168h, not "7d"`},
		{"HOLD_TTL", "3h", `HOLD_TTL, which is 3h0m0s, must be at most HOLD_LIFETIME_MAX, which is 2h0m0s`},
		{"HOLD_TTL", "-1s", `HOLD_TTL must be between 1s and 720h0m0s, not -1s`},
		{"INVENTORY_WORKER_ONESHOT", "yes", `INVENTORY_WORKER_ONESHOT must be true or false, not "yes"`},
		{"LOG_LEVEL", "loud", `LOG_LEVEL must be debug, info, warn or error, not "loud"`},
		{"WORKER_LANES", "hot,cold", `WORKER_LANES must be hot or normal, or several with commas between, not "hot,cold"`},
		{"WORKER_LANES", ",", `WORKER_LANES must be hot or normal, or several with commas between, not ","`},
		{"HOT_VARIANTS_MAX", "257", `HOT_VARIANTS_MAX must be between 1 and 256, not 257`},
		{"FLOOD_RATE", "0", `FLOOD_RATE must be between 1 and 1000000, not 0`},
		{"CLOUD_RUN_TASK_INDEX", "1", `CLOUD_RUN_TASK_INDEX must be below CLOUD_RUN_TASK_COUNT, which is 1, not 1`},
		{"REQUEST_RETENTION", "1h", `REQUEST_RETENTION, which is 1h0m0s, must be at least HOLD_LIFETIME_MAX, which is 2h0m0s: the key of a live hold or checkout must not be forgotten`},
		{"AUDIT_RETENTION", "168h", `AUDIT_RETENTION must be 0 (for ever) or at least REQUEST_RETENTION and a day, 192h0m0s, not 168h0m0s`},
		{"METERED_COMMANDS_ENABLED", "on", `METERED_COMMANDS_ENABLED must be true or false, not "on"`},
		{"METERED_RETENTION", "59s", `METERED_RETENTION must be between 1m0s and 87840h0m0s, not 59s`},
		{"TENANT_BUDGET", "600/1m", `TENANT_BUDGET must be left out unless METERED_COMMANDS_ENABLED is true, not 600/1m0s: without it no calls are counted`},
		{"CUSTOMER_BUDGET", "5/1s", `CUSTOMER_BUDGET must be left out unless METERED_COMMANDS_ENABLED is true, not 5/1s: without it no calls are counted`},
		{"CHECKOUT_TTL", "25h", `CHECKOUT_TTL must be between 1s and 24h0m0s, not 25h0m0s`},
		{"CHECKOUT_CALLBACK_TIMEOUT", "2m", `CHECKOUT_CALLBACK_TIMEOUT must be between 1s and 1m0s, not 2m0s`},
		{"CHECKOUT_CALLBACK_PRIVATE", "yes", `CHECKOUT_CALLBACK_PRIVATE must be true or false, not "yes"`},
		{"CHECKOUT_CALLBACK_SECRET", "s3cret", badSecret},
		{"CHECKOUT_CALLBACK_SECRET", "whsec_c2hvcnQ=", badSecret},
		{"LIVE_CONNECTIONS_MAX", "0", `LIVE_CONNECTIONS_MAX must be between 1 and 1000000, not 0`},
		{"LIVE_ORIGINS", "https://a.example/", badOrigin + `"https://a.example/"`},
		{"LIVE_ORIGINS", "https://a.example,*", badOrigin + `"*"`},
		{"HOLDFAST_URL", "localhost:8080", `HOLDFAST_URL must be the address of a Holdfast API, http://host:port, not "localhost:8080"`},
		{"HOLDFAST_KEY", "hf_abc", `HOLDFAST_KEY must be an API key, hf_ and 49 letters and digits, copied whole`},
	} {
		_, err := load(t, map[string]string{c.name: c.value})
		if err == nil || err.Error() != c.want {
			t.Errorf("%s=%s: %v\nwant %s", c.name, c.value, err, c.want)
		}
	}
}

func TestSchedules(t *testing.T) {
	t.Parallel()
	for spec, want := range map[string]string{
		"@every 15s":                      "",
		"*/5 * * * *":                     "",
		"CRON_TZ=Europe/Paris 30 4 * * *": "",
		"@hourly":                         "",
		"TZ=UTC":                          "the zone is not followed by a schedule",
		"CRON_TZ=Nowhere/None * * * * *":  "bad location",
		"0 0 30 2 *":                      "the date never comes",
		"@every 0s":                       "more often than every second",
		"@every -5s":                      "more often than every second",
		"@every":                          "unrecognized descriptor",
		"15s":                             "expected exactly 5 fields",
		"* * * *":                         "expected exactly 5 fields",
		"61 * * * *":                      "above maximum",
		"\x00":                            "expected exactly 5 fields",
	} {
		c, err := load(t, map[string]string{"SWEEP_SCHEDULE": spec})
		switch {
		case want == "" && err != nil:
			t.Errorf("%q: %v", spec, err)
		case want == "" && !c.Sweep.Schedule.Next(time.Now()).After(time.Now()):
			t.Errorf("%q: the next run is not in the future", spec)
		case want != "" && (err == nil || !strings.HasPrefix(err.Error(), "SWEEP_SCHEDULE must be a schedule") || !strings.Contains(err.Error(), want)):
			t.Errorf("%q: %v, want a sentence with %q", spec, err, want)
		}
	}
}

// docs/configuration.md has one row for each variable, with its default.
func TestDocumentation(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| `([A-Z_]+)` \\|([^|]*)\\|").FindAllStringSubmatch(string(text), -1) {
		documented[row[1]] = strings.Trim(row[2], " `")
	}
	for name, want := range variables(reflect.TypeFor[config.Config]()) {
		got, ok := documented[name]
		if !ok || got != want {
			t.Errorf("docs/configuration.md has %q for %s, want a row with the default %q", got, name, want)
		}
	}
}

// variables returns the names and defaults in the tags of a struct and its
// nested structs.
func variables(of reflect.Type) map[string]string {
	all := map[string]string{}
	for field := range of.Fields() {
		tag, tagged := field.Tag.Lookup("env")
		if !tagged {
			maps.Copy(all, variables(field.Type))
			continue
		}
		name, value, _ := strings.Cut(tag, ", default=")
		all[name] = value
	}
	return all
}

func FuzzSchedule(f *testing.F) {
	for _, spec := range []string{"@every 15s", "TZ=UTC", "TZ=", "CRON_TZ= *", "0 0 30 2 *", "*/0 * * * *", "1-5/2 , * * ?", "@every 1h1h"} {
		f.Add(spec)
	}
	f.Fuzz(func(t *testing.T, spec string) {
		var s config.Schedule
		if err := s.EnvDecode(spec); err == nil && s.Next(time.Now()).IsZero() {
			t.Errorf("%q is accepted and never runs", spec)
		}
	})
}

// The sentence names the variable, shows the form, and repeats no part of the
// value. An error of the driver masks a password only if the driver recognizes
// it.
func TestDatabaseURL(t *testing.T) {
	t.Parallel()
	const form = "DATABASE_URL must be postgres://user:password@host:5432/database: "
	for value, want := range map[string]string{
		"localhost:5432":                             "does not begin with postgres://",
		"postgres:foo":                               "does not begin with postgres://",
		"s3cret":                                     "does not begin with postgres://",
		"u:s3cret@localhost/db":                      "does not begin with postgres://",
		"postgres:/u:s3cret@localhost/db":            "does not begin with postgres://",
		"mysql://u:s3cret@localhost/db":              "does not begin with postgres://",
		"mysql://u:s3cret@localhost/db?a=b":          "does not begin with postgres://",
		"host localhost password=s3cret":             "keyword=value",
		"postgres://u:s3cret/x@localhost/db":         "written as %2F for /",
		"postgres://u:s3cret%x@localhost/db":         "cannot be read",
		"postgres://u:s3cret@localhost:port/db":      "cannot be read",
		"postgres://u:s3cret s3cret@localhost/db":    "cannot be read",
		"postgres://u:s3cret@h/db?sslrootcert=/none": "open /none: no such file",
	} {
		_, err := load(t, map[string]string{"DATABASE_URL": value})
		if err == nil || !strings.HasPrefix(err.Error(), form) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s:\n%v\nwant %q and no password", value, err, form+"…"+want)
		}
	}
	for _, value := range []string{
		"postgres://u:p@localhost/db", "postgresql://localhost/db?sslmode=disable", "postgres:///db?host=/run/postgresql", "host=localhost dbname=db",
	} {
		if _, err := load(t, map[string]string{"DATABASE_URL": value}); err != nil {
			t.Errorf("%s: %v", value, err)
		}
	}
}
