package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/cmd/internal/programtest"
	"github.com/holdfast/holdfast/internal/pgtest"
)

func TestMain(m *testing.M) { programtest.Main(m, main) }

var readyLine = regexp.MustCompile(`^ready url=(http://127\.0\.0\.1:\d+) key=(hf_[0-9A-Za-z]{49}) database=(postgres://\S+) dashboard=(http://\S+) storefront=(http://\S+)$`)

// service is the content of a ready line.
type service struct {
	t                  testing.TB
	url, key, database string
}

func ready(t testing.TB, out *programtest.Output) service {
	t.Helper()
	line := out.Line(t, "ready ")
	parts := readyLine.FindStringSubmatch(line)
	hint := out.Line(t, "In another terminal: ")
	if lines := strings.Split(out.String(), "\n"); parts == nil || len(lines) != 4 || lines[0] != line || lines[2] != hint {
		t.Fatalf("stdout is %q, want the ready line and two more", out)
	}
	if want := parts[1] + "/ops/#key=" + parts[2]; parts[4] != want {
		t.Fatalf("the dashboard is at %s, want %s", parts[4], want)
	}
	if want := parts[1] + "/demo/"; parts[5] != want {
		t.Fatalf("the storefront is at %s, want %s", parts[5], want)
	}
	return service{t, parts[1], parts[2], parts[3]}
}

// call makes a call that must be answered with one of the statuses.
func (s service) call(method, path, body string, statuses ...int) map[string]any {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), method, s.url+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	return s.do(r, statuses...)
}

// do sends a request that must be answered with one of the statuses.
func (s service) do(r *http.Request, statuses ...int) map[string]any {
	s.t.Helper()
	r.Header.Set("Authorization", "Bearer "+s.key)
	r.Close = true
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	var fields map[string]any
	if err := json.Unmarshal(text, &fields); err != nil || !slices.Contains(statuses, answer.StatusCode) {
		s.t.Fatalf("%s %s: %d %s, want one of %v", r.Method, r.URL.Path, answer.StatusCode, text, statuses)
	}
	return fields
}

// add puts one unit into a cart and polls until the request is done.
func (s service) add(cart, variant string) {
	s.t.Helper()
	queued := s.call(http.MethodPost, "/v1/carts/"+cart+"/items", fmt.Sprintf(`{"variant_id":%q,"quantity":1}`, variant), http.StatusAccepted)
	pgtest.Until(s.t, "the request is done", func() bool {
		return s.call(http.MethodGet, fmt.Sprintf("/v1/requests/%s?wait=5", queued["request_id"]), "", http.StatusOK)["status"] == "done"
	})
}

// postmaster returns the process id and the data folder of the service's
// database.
func (s service) postmaster() (pid int, folder string) {
	s.t.Helper()
	conn, err := pgx.Connect(s.t.Context(), s.database)
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(s.t.Context())) }()
	if err := conn.QueryRow(s.t.Context(), "SHOW data_directory").Scan(&folder); err != nil {
		s.t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(folder, "postmaster.pid"))
	if err != nil {
		s.t.Fatal(err)
	}
	first, _, _ := strings.Cut(string(text), "\n")
	if pid, err = strconv.Atoi(first); err != nil {
		s.t.Fatal(err)
	}
	return pid, folder
}

// signalGroup sends the signal to the process and all its children, as a
// terminal does.
func signalGroup(t *testing.T, p *programtest.Process, signal syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(-p.PID(), signal); err != nil {
		t.Fatalf("send %s to the group: %v", signal, err)
	}
}

func isGone(pid int) bool { return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) }

func isRemoved(folder string) bool {
	_, err := os.Stat(folder)
	return os.IsNotExist(err)
}

// raced reports whether the race detector is in this test, "true" or "false". A
// program that is built like the test needs no package compiled again.
func raced() string {
	info, ok := debug.ReadBuildInfo()
	return strconv.FormatBool(ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"}))
}

// TestBinary runs the binary from its start to the end of its processes: one
// ready line, one add-to-cart until it is done, SIGTERM.
func TestBinary(t *testing.T) {
	t.Parallel()
	binary := filepath.Join(t.TempDir(), "holdfast")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "-race="+raced(), ".")
	build.Env = append(os.Environ(), "GOFLAGS=-buildvcs=false")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	process := programtest.StartBinary(t, binary, map[string]string{"LOG_LEVEL": "warn"}, "run", "--port", "0")
	s := ready(t, process.Stdout)
	pid, folder := s.postmaster()
	s.call(http.MethodPut, "/v1/stocks/shirt", `{"stock":100}`, http.StatusOK)
	s.add("cart-1", "shirt")
	if stock := s.call(http.MethodGet, "/v1/stocks/shirt", "", http.StatusOK); stock["reserved"] != 1. || stock["available"] != 99. {
		t.Errorf("stock after one add: %v", stock)
	}
	process.Signal(syscall.SIGTERM)
	if code := process.Wait(); code != 0 {
		t.Errorf("exit code %d; it logged:\n%s", code, process.Stderr)
	}
	if !isGone(pid) || !isRemoved(folder) {
		t.Error("the stop left Postgres or its data behind")
	}
	if process.Stderr.String() != "" {
		t.Errorf("an ordinary run logs warnings or errors:\n%s", process.Stderr)
	}
}

// No Postgres remains, however the program ends.
func TestLeavesNoPostgres(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*programtest.Process) int{
		"kill -9": func(p *programtest.Process) int { p.Signal(syscall.SIGKILL); return -1 },
		// A terminal sends the signal to every process of the group. Postgres
		// must not end before the programs.
		"interrupt": func(p *programtest.Process) int { signalGroup(t, p, syscall.SIGINT); return 0 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			process := programtest.StartProcess(t, map[string]string{"LOG_LEVEL": "warn"}, "run", "--port", "0")
			pid, folder := ready(t, process.Stdout).postmaster()
			want := end(process)
			if code := process.Wait(); code != want {
				t.Errorf("exit code %d, want %d; it logged:\n%s", code, want, process.Stderr)
			}
			pgtest.Until(t, "Postgres and its data are removed", func() bool { return isGone(pid) && isRemoved(folder) })
			if process.Stderr.String() != "" {
				t.Errorf("it logs warnings or errors:\n%s", process.Stderr)
			}
		})
	}
}

// dataFolder returns a folder that the account of a private Postgres can reach.
func dataFolder(t *testing.T) string {
	t.Helper()
	folder, err := os.MkdirTemp("", "hf-data-") //nolint:usetesting // the server's user can't reach the test's folder
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	if err := os.Chmod(folder, 0o711); err != nil {
		t.Fatal(err)
	}
	return folder
}

// The next run on the port has the same data and the same key, even after a
// kill -9. It finds them in the state folder, or in the folder that it is given.
func TestKeepsData(t *testing.T) {
	t.Parallel()
	state, port := dataFolder(t), freePort(t)
	env := map[string]string{"LOG_LEVEL": "warn", "XDG_STATE_HOME": state}
	start := func(args ...string) (*programtest.Process, service) {
		process := programtest.StartProcess(t, env, append([]string{"run"}, args...)...)
		return process, ready(t, process.Stdout)
	}
	first, before := start("--port", port)
	before.call(http.MethodPut, "/v1/stocks/shirt", `{"stock":7}`, http.StatusOK)
	before.add("cart-1", "shirt")

	folder := filepath.Join(state, "holdfast", port)
	again := programtest.StartProcess(t, map[string]string{"XDG_STATE_HOME": state}, "run", "--port", port)
	if code := again.Wait(); code != 1 || !strings.Contains(again.Stderr.String(), "another process runs a server on "+folder+": stop it, or choose another folder") {
		t.Errorf("a second run ended with %d:\n%s", code, again.Stderr)
	}
	first.Signal(syscall.SIGKILL)
	first.Wait()

	env["DATABASE_URL"] = before.database // as in a terminal that has the variables of `holdfast env`
	for _, args := range [][]string{{"--port", port}, {"--port", "0", "--data", folder}} {
		process, after := start(args...)
		if after.key != before.key {
			t.Errorf("%q: the run has another key", args)
		}
		if stock := after.call(http.MethodGet, "/v1/stocks/shirt", "", http.StatusOK); stock["stock"] != 7. || stock["reserved"] != 1. {
			t.Errorf("%q: stock after a restart: %v", args, stock)
		}
		process.Signal(syscall.SIGTERM)
		if code := process.Wait(); code != 0 {
			t.Errorf("%q: exit code %d; it logged:\n%s", args, code, process.Stderr)
		}
	}

	process, fresh := start("--port", port, "--fresh")
	if items := fresh.call(http.MethodGet, "/v1/stocks", "", http.StatusOK)["items"].([]any); len(items) != 0 || fresh.key == before.key {
		t.Errorf("a fresh run has %v", items)
	}
	process.Signal(syscall.SIGTERM)
	if code := process.Wait(); code != 0 {
		t.Errorf("exit code %d; it logged:\n%s", code, process.Stderr)
	}
}

// freePort returns a port that no program listens on at the moment.
func freePort(t *testing.T) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// With DATABASE_URL set, the key of a run is revoked when the run ends.
func TestRunOnDatabase(t *testing.T) {
	t.Parallel()
	shop := programtest.NewFixture(t)
	program := programtest.Start(t, run, shop.Env(), "run")
	s := ready(t, program.Stdout)
	if s.database != shop.URL {
		t.Errorf("it runs on %s, want %s", s.database, shop.URL)
	}
	s.call(http.MethodPut, "/v1/stocks/shirt", `{"stock":7,"lane":"hot"}`, http.StatusOK)
	s.add("cart-1", "shirt")
	if err := program.Stop(); err != nil {
		t.Fatal(err)
	}
	if n := shop.Int(`SELECT count(*) FROM api_keys WHERE revoked_at IS NULL`); n != 0 {
		t.Errorf("%d keys are still valid after the run", n)
	}
	shop.Verify()
}

// The reason why it cannot run is one clear sentence.
func TestRunRefuses(t *testing.T) {
	t.Parallel()
	shop := programtest.NewFixture(t)
	program := programtest.Start(t, run, shop.Env(), "run")
	s := ready(t, program.Stdout)
	port := s.url[strings.LastIndex(s.url, ":")+1:]
	for want, args := range map[string][]string{
		"port " + port + " is taken by another program":    {"run", "--port", port},
		"--port must be between 0 and 65535, not 70000":    {"run", "--port", "70000"},
		"there is no private Postgres whose data a folder": {"run", "--data", t.TempDir()},
		"leave one of them out":                            {"run", "--data", t.TempDir(), "--fresh"},
	} {
		stdout, _, err := programtest.Once(t, run, shop.Env(), args...)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") || stdout != "" {
			t.Errorf("%q: %v, want a sentence with %q, and no ready line (%s)", args, err, want, stdout)
		}
	}
}

// With --stay the demo keeps its service after the sale. An interrupt then ends
// it with the exit code of the sale.
func TestDemoStays(t *testing.T) {
	t.Parallel()
	process := programtest.StartProcess(t, map[string]string{}, "demo", "--stay", "--for", "1s", "--stock", "10", "--buyers", "100")
	watch := process.Stdout.Line(t, "Watch it in a browser: ")
	process.Stdout.Line(t, "The service stays until it is interrupted")
	again := process.Stdout.Line(t, "  dashboard  ")
	address := strings.TrimPrefix(again, "  dashboard  ")
	url, key, found := strings.Cut(address, "/ops/#key=")
	if !found || !strings.HasSuffix(watch, address) {
		t.Fatalf("the dashboard is at %q, and %q before the sale", again, watch)
	}
	s := service{t: t, url: url, key: key}
	s.call(http.MethodGet, "/v1/lanes", "", http.StatusOK)
	signalGroup(t, process, syscall.SIGINT)
	if code := process.Wait(); code != 0 || strings.Contains(process.Stdout.String(), "BROKEN") || process.Stderr.String() != "" {
		t.Errorf("exit code %d; it printed:\n%s\nand logged:\n%s", code, process.Stdout, process.Stderr)
	}
}

// page reads a path without a key, and returns its status and content type.
func (s service) page(path string) (status int, contentType string) {
	s.t.Helper()
	status, header, _ := s.get(path)
	return status, header.Get("Content-Type")
}

// text returns the content of a page that needs no key.
func (s service) text(path string) string {
	s.t.Helper()
	_, _, text := s.get(path)
	return text
}

func (s service) get(path string) (status int, header http.Header, text string) {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, s.url+path, http.NoBody)
	if err != nil {
		s.t.Fatal(err)
	}
	r.Close = true
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return answer.StatusCode, answer.Header, string(body)
}

// The dashboard is served beside the API, which keeps its other paths. With
// DASHBOARD=false there is neither the page nor its address.
func TestDashboard(t *testing.T) {
	t.Parallel()
	shop := programtest.NewFixture(t)
	on := ready(t, programtest.Start(t, run, shop.Env(), "run").Stdout)
	for path, want := range map[string]string{"/ops/": "200 text/html; charset=utf-8", "/ops": "200 text/html; charset=utf-8", "/ops/none": "404 text/plain; charset=utf-8", "/opsx": "404 application/problem+json"} {
		if status, contentType := on.page(path); fmt.Sprint(status, " ", contentType) != want {
			t.Errorf("%s is %d %s, want %s", path, status, contentType, want)
		}
	}
	if state := on.call(http.MethodGet, "/v1/ops/overview", "", http.StatusOK); len(state["lanes"].([]any)) != 2 {
		t.Errorf("the overview is %v", state)
	}
	out := programtest.Start(t, run, shop.Env("DASHBOARD", "false"), "run").Stdout
	line := out.Line(t, "ready ")
	parts := regexp.MustCompile(`^ready url=(\S+) `).FindStringSubmatch(line)
	if parts == nil || strings.Contains(line, "dashboard=") {
		t.Fatalf("the ready line is %q", line)
	}
	off := service{t: t, url: parts[1]}
	if status, contentType := off.page("/ops/"); status != http.StatusNotFound || contentType != "application/problem+json" {
		t.Errorf("/ops/ is %d %s while the dashboard is off", status, contentType)
	}
}

// The live channel of the overview sends the state again and again, and shows
// what an operator changed.
func TestLiveOverview(t *testing.T) {
	t.Parallel()
	s := ready(t, programtest.Start(t, run, programtest.NewFixture(t).Env(), "run").Stdout)
	ticket := s.call(http.MethodPost, "/v1/live/tickets", "", http.StatusCreated)["ticket"].(string)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	conn, _, err := websocket.Dial(ctx, s.url+"/v1/live?ticket="+ticket, nil) //nolint:bodyclose // the library closes it
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.CloseNow() }()
	if err := conn.Write(ctx, websocket.MessageText, []byte(`{"subscribe":"ops.overview"}`)); err != nil {
		t.Fatal(err)
	}
	overview := func() (lanes []any) {
		for {
			_, text, err := conn.Read(ctx)
			if err != nil {
				t.Fatal(err)
			}
			var frame struct {
				Channel, Event string
				Payload        map[string]any
			}
			if err := json.Unmarshal(text, &frame); err != nil {
				t.Fatalf("%s: %v", text, err)
			}
			if frame.Channel == "ops.overview" && frame.Event == "snapshot" {
				return frame.Payload["lanes"].([]any)
			}
		}
	}
	paused := func(lane any) bool { return lane.(map[string]any)["paused"] == true }
	if slices.ContainsFunc(overview(), paused) {
		t.Error("a lane is paused before an operator pauses one")
	}
	s.call(http.MethodPatch, "/v1/lanes/normal", `{"paused":true}`, http.StatusOK)
	for !slices.ContainsFunc(overview(), paused) { // until ctx ends
	}
}
