package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/sethvargo/go-envconfig"

	"github.com/holdfast/holdfast/cmd/internal/boot"
	"github.com/holdfast/holdfast/cmd/internal/programtest"
)

// A shell that evaluates the output has the variables of the running service.
// Only its user can read the file behind it, which is gone with the service.
func TestEnv(t *testing.T) {
	t.Parallel()
	state := t.TempDir()
	env := programtest.NewFixture(t).Env("XDG_STATE_HOME", state)
	program := programtest.Start(t, run, env, "run")
	s := ready(t, program.Stdout)
	port := s.url[strings.LastIndex(s.url, ":")+1:]
	if hint := program.Stdout.Line(t, "In another terminal: "); !strings.HasSuffix(hint, ` env --port `+port+`)"`) {
		t.Errorf("the hint is %q", hint)
	}
	printed, _, err := programtest.Once(t, run, env, "env", "--port", port)
	if err != nil {
		t.Fatal(err)
	}
	shell := exec.CommandContext(t.Context(), "sh", "-c", `eval "$1" && printf '%s\n' "$HOLDFAST_URL" "$HOLDFAST_KEY" "$DATABASE_URL"`, "sh", printed)
	if out, err := shell.CombinedOutput(); err != nil || string(out) != s.url+"\n"+s.key+"\n"+s.database+"\n" {
		t.Errorf("the shell has %q, %v", out, err)
	}
	info, err := os.Stat(filepath.Join(state, "holdfast", port, instanceFile))
	if err != nil || info.Mode() != 0o600 {
		t.Errorf("the file of the service: %v, %v; want one that only its user can read", info, err)
	}
	if err := program.Stop(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(state, "holdfast", port)); !os.IsNotExist(err) {
		t.Errorf("the stop left the folder of the service: %v", err)
	}
	isMissing(t, env, port)
}

// isMissing checks that `holdfast env` prints nothing but a clear sentence.
func isMissing(t *testing.T, env map[string]string, port string) {
	t.Helper()
	stdout, _, err := programtest.Once(t, run, env, "env", "--port", port)
	if err == nil || !strings.Contains(err.Error(), "no `holdfast run` of this user serves port "+port) || stdout != "" {
		t.Errorf("it printed %q, %v", stdout, err)
	}
}

// What a service that was killed left behind is not printed.
func TestEnvAfterKill(t *testing.T) {
	t.Parallel()
	env := programtest.NewFixture(t).Env("XDG_STATE_HOME", t.TempDir())
	process := programtest.StartProcess(t, env, "run")
	s := ready(t, process.Stdout)
	process.Signal(syscall.SIGKILL)
	process.Wait()
	isMissing(t, env, s.url[strings.LastIndex(s.url, ":")+1:])
}

func TestQuoted(t *testing.T) {
	t.Parallel()
	const text = "postgres://a:b'c$(d)`e`@h/x?y=1&z=\\"
	out, err := exec.CommandContext(t.Context(), "sh", "-c", "printf %s "+quoted(text)).Output()
	if err != nil || string(out) != text {
		t.Errorf("the shell reads %q, %v; want %q", out, err, text)
	}
}

// The state folder is that of the specification, and for root one that the user
// of a private Postgres can reach.
func TestStateFolder(t *testing.T) {
	t.Parallel()
	home := "/home/ann/.local/state/holdfast/8080"
	none := ""
	if os.Geteuid() == 0 {
		home, none = "/var/lib/holdfast/8080", "/var/lib/holdfast/8080"
	}
	for _, test := range []struct{ state, home, want string }{
		{"/state", "/home/ann", "/state/holdfast/8080"},
		{"", "/home/ann", home},
		{"relative", "/home/ann", home},
		{"", "", none},
	} {
		process := boot.Process{Env: envconfig.MapLookuper(map[string]string{"XDG_STATE_HOME": test.state, "HOME": test.home})}
		if got := stateFolder(process, 8080); got != test.want {
			t.Errorf("%+v: %q", test, got)
		}
	}
}
