package programtest_test

import (
	"encoding/json"
	"maps"
	"net"
	"net/url"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/holdfast/holdfast/cmd/internal/programtest"
	"github.com/holdfast/holdfast/internal/pgdev"
	"github.com/holdfast/holdfast/internal/pgtest"
)

const (
	plantedPassword = "pl4nted"
	plantedURL      = "postgres://someone:" + plantedPassword + "@127.0.0.1:1/shop"
)

// programs are the programs with arguments that need a database.
var programs = map[string][][]string{
	"api": {nil}, "worker": {nil}, "oneshot": {{"drain"}, {"migrate"}}, "holdfast": {{"run"}, {"verify"}},
}

// TestBadInput starts each program with one invalid variable after another,
// once for each form of the log. It must exit with 1 and log one ERROR, which
// names the variable. Its output must not contain a password or key. The tool
// holdfast writes a line of text instead of that ERROR unless LOG_FORMAT is
// set.
func TestBadInput(t *testing.T) {
	t.Parallel()
	server := pgtest.StartServer(t, pgdev.Options{})
	cases := badInputs(t, server.URL("postgres"))
	folder := build(t)
	for program, calls := range programs {
		for _, args := range calls {
			for name, c := range cases {
				if name == "no database" && slices.Contains(args, "run") { // run then starts a private Postgres
					continue
				}
				for _, format := range []string{"", "json", "cloud"} {
					if format != "" && c.variable == "LOG_FORMAT" {
						continue
					}
					t.Run(strings.Join([]string{program, strings.Join(args, " "), name, format}, "/"), func(t *testing.T) {
						t.Parallel()
						text := program == "holdfast" && format == "" && c.variable != "LOG_FORMAT"
						c.try(t, filepath.Join(folder, program), text, format, args)
					})
				}
			}
		}
	}
}

// build builds the programs into a folder, like this test with or without the
// race detector, so that no package has to be compiled again.
func build(t *testing.T) (folder string) {
	t.Helper()
	folder = t.TempDir()
	info, ok := debug.ReadBuildInfo()
	raced := ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
	args := []string{"build", "-buildvcs=false", "-race=" + strconv.FormatBool(raced), "-o", folder}
	for program := range programs {
		args = append(args, "github.com/holdfast/holdfast/cmd/"+program)
	}
	if out, err := exec.CommandContext(t.Context(), "go", args...).CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return folder
}

// badInput is an environment that a program refuses because of one variable.
type badInput struct {
	variable string
	env      map[string]string
	// waits means that the program waits for the database before it ends.
	waits bool
}

// badInputs are cases by name. The database with that URL asks for a password.
func badInputs(t *testing.T, address string) map[string]badInput {
	t.Helper()
	changed := func(change func(*url.URL)) string {
		u, err := url.Parse(address)
		if err != nil {
			t.Fatal(err)
		}
		change(u)
		return u.String()
	}
	silent := listen(t)
	return map[string]badInput{
		"a number":    {variable: "HOT_BATCH", env: map[string]string{"HOT_BATCH": "many", "DATABASE_URL": plantedURL}},
		"a range":     {variable: "HOT_CONCURRENCY", env: map[string]string{"HOT_CONCURRENCY": "0", "DATABASE_URL": plantedURL}},
		"a form":      {variable: "LOG_FORMAT", env: map[string]string{"LOG_FORMAT": "text", "DATABASE_URL": plantedURL}},
		"a key":       {variable: "HOLDFAST_KEY", env: map[string]string{"HOLDFAST_KEY": plantedPassword, "DATABASE_URL": plantedURL}},
		"an exporter": {variable: "OTEL_TRACES_EXPORTER", env: map[string]string{"OTEL_TRACES_EXPORTER": "pigeon", "DATABASE_URL": plantedURL}},
		"a header": {variable: "OTEL_EXPORTER_OTLP_HEADERS", env: map[string]string{
			"OTEL_EXPORTER_OTLP_HEADERS": "api-key " + plantedPassword, "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "DATABASE_URL": plantedURL,
		}},
		"no database":   {variable: "DATABASE_URL", env: map[string]string{}},
		"a URL":         {variable: "DATABASE_URL", env: map[string]string{"DATABASE_URL": strings.Replace(plantedURL, ":1/", ":port/", 1)}},
		"a parameter":   {variable: "DATABASE_URL", env: map[string]string{"DATABASE_URL": "postgres://someone@127.0.0.1:1/shop?sslmode=bogus&password=" + plantedPassword}},
		"another kind":  {variable: "DATABASE_URL", env: map[string]string{"DATABASE_URL": strings.Replace(plantedURL, "postgres:", "mysql:", 1)}},
		"the password":  {variable: "DATABASE_URL", env: map[string]string{"DATABASE_URL": changed(func(u *url.URL) { u.User = url.UserPassword(u.User.Username(), plantedPassword) })}},
		"the database":  {variable: "DATABASE_URL", env: map[string]string{"DATABASE_URL": changed(func(u *url.URL) { u.Path = "/no_such_database" })}},
		"nothing there": {variable: "DATABASE_URL", env: map[string]string{"DATABASE_URL": plantedURL, "DATABASE_WAIT_MAX": "1s"}, waits: true},
		"silence": {
			variable: "DATABASE_URL", waits: true,
			env: map[string]string{"DATABASE_URL": strings.Replace(plantedURL, "127.0.0.1:1", silent, 1), "DATABASE_WAIT_MAX": "2s"},
		},
	}
}

// listen accepts connections until the test ends, and never answers.
func listen(t *testing.T) (address string) {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() }) // connections not yet accepted are silent too
	return l.Addr().String()
}

func (c badInput) try(t *testing.T, binary string, text bool, format string, args []string) {
	t.Helper()
	env := map[string]string{"PORT": "0"}
	maps.Copy(env, c.env)
	if format != "" {
		env["LOG_FORMAT"] = format
	}
	process := programtest.StartBinary(t, binary, env, args...)
	code := process.Wait()
	waited := strings.Contains(process.Stderr.String(), "the start waits for it")
	if code != 1 || waited != c.waits {
		t.Errorf("it ended with %d, waited: %t; want 1, %t", code, waited, c.waits)
	}
	var errors []string
	for line := range strings.Lines(process.Stderr.String()) {
		var record struct{ Level, Severity string }
		switch isJSON := json.Unmarshal([]byte(line), &record) == nil; {
		case !isJSON && !text:
			t.Errorf("a line of text: %s", line)
		case !isJSON, record.Level == "ERROR" && format != "cloud", record.Severity == "ERROR" && format == "cloud":
			errors = append(errors, line)
		}
	}
	if len(errors) != 1 || !strings.Contains(errors[0], c.variable) {
		t.Errorf("want one ERROR, which names %s, in\n%s", c.variable, process.Stderr)
	}
	secrets := []string{plantedPassword}
	if u, err := url.Parse(c.env["DATABASE_URL"]); err == nil {
		if password, ok := u.User.Password(); ok {
			secrets = append(secrets, password)
		}
	}
	for _, secret := range secrets {
		if all := process.Stdout.String() + process.Stderr.String(); strings.Contains(all, secret) {
			t.Errorf("the secret %s is shown:\n%s", secret, all)
		}
	}
}
