package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// container is what Cloud Run makes of a manifest, without the sidecar. It is a
// read-only root with only the image's programs and the socket to a database.
// Its processes have the environment of the manifests.
type container struct {
	t     *testing.T
	code  *code
	units map[string]*unit
	// root is the folder. seen is its path for the processes: "/" if they are
	// confined to it.
	root, seen string
	confined   confinement
	// direct is the database's URL for the test, url the one for the programs,
	// through the socket.
	direct, url string
	sessions    *sessions
}

// confinement is one way to run a program as another user in another root.
type confinement struct {
	how  string
	attr *syscall.SysProcAttr
}

// userID is the image's user.
const userID = 65532

// filledIn replaces the placeholders of the manifests, as cloudrun/README.md
// describes.
var filledIn = strings.NewReplacer("PROJECT_ID", "project", "REGION", "region", "VERSION", testVersion)

func newContainer(t *testing.T) *container {
	t.Helper()
	c := &container{t: t, units: map[string]*unit{}, root: t.TempDir()}
	var err error
	c.code, err = readCode(os.DirFS(repository))
	c.must(err)
	r := &report{}
	units, err := readManifests(os.DirFS(repository), r)
	c.must(err)
	if len(r.findings) > 0 {
		t.Fatalf("the manifests cannot be read:\n%s", lines(r.findings))
	}
	instance := ""
	for _, u := range units {
		c.units[u.name] = u
		instance = filledIn.Replace(u.fields["cloudsql"].value)
	}
	folder, err := programs()
	c.must(err)
	for _, name := range []string{"api", "worker", "oneshot", "holdfast"} {
		c.must(os.Link(filepath.Join(folder, name), filepath.Join(c.root, name)))
	}
	c.makeDatabase(instance)
	c.confine()
	return c
}

// makeDatabase makes a database and, under the root, the socket to it. From
// then on the root is read-only.
func (c *container) makeDatabase(instance string) {
	c.t.Helper()
	server, err := postgres()
	c.must(err)
	admin, err := pgx.Connect(c.t.Context(), server)
	c.must(err)
	name := "holdfast_container_" + strings.ToLower(rand.Text())
	_, err = admin.Exec(c.t.Context(), "CREATE DATABASE "+name)
	c.must(err)
	c.sessions = &sessions{admin: admin, database: name, most: map[string]int{}}
	config := admin.Config()
	address := &url.URL{Scheme: "postgres", User: url.UserPassword(config.User, config.Password), Path: "/" + name}
	address.RawQuery = "host=/cloudsql/" + instance
	c.url = address.String()
	direct, err := url.Parse(server)
	c.must(err)
	direct.Path = "/" + name
	c.direct = direct.String()

	sockets := filepath.Join(c.root, "cloudsql", instance)
	c.must(os.MkdirAll(sockets, 0o755))
	listener, err := (&net.ListenConfig{}).Listen(c.t.Context(), "unix", filepath.Join(sockets, ".s.PGSQL.5432"))
	c.must(err)
	network, to := pgconn.NetworkAddress(config.Host, config.Port)
	go forward(listener, network, to, c.sessions.sample)
	folders := []string{sockets, filepath.Dir(sockets), c.root}
	c.t.Cleanup(func() {
		for _, folder := range folders {
			_ = os.Chmod(folder, 0o755) // so that it can be removed; a failure is reported then
		}
		_ = listener.Close()
		c.sessions.close()
	})
	c.must(os.Chmod(filepath.Join(sockets, ".s.PGSQL.5432"), 0o777)) // any user may connect, as on Cloud SQL
	for _, folder := range folders {
		c.must(os.Chmod(folder, 0o555))
	}
}

// confine determines how programs can be run in the root: as the image's user
// or, if this system permits neither a chroot nor a user namespace, as this
// test's user and with the system's files.
func (c *container) confine() {
	c.t.Helper()
	for _, way := range confinements(c.root) {
		c.seen, c.confined = "/", way
		cmd := c.command("holdfast", "version")
		said, err := cmd.CombinedOutput()
		if err == nil {
			note("the programs run in %s, as user %d", way.how, userID)
			return
		}
		note("%s is not possible here: %v %s", way.how, err, said)
	}
	note("NOT CONFINED: the programs run with this system's files, as user %d, so this test does not find a file that the image lacks", os.Getuid())
	c.seen, c.confined = c.root, confinement{}
	c.url = strings.Replace(c.url, "host=", "host="+c.root, 1)
}

// command prepares a program of the image, without an environment.
func (c *container) command(program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(context.Background(), path.Join(c.seen, program), args...)
	cmd.Dir, cmd.Env, cmd.SysProcAttr = c.seen, []string{}, c.confined.attr
	return cmd
}

// process is a program that runs in a container.
type process struct {
	t              *testing.T
	cmd            *exec.Cmd
	stdout, stderr output
	began          time.Time
	signalled      time.Time // SIGTERM
	end            time.Time // once ended is closed
	ended          chan struct{}
	ports          ports
}

// start starts a program with the given environment.
func (c *container) start(env map[string]string, program string, args ...string) *process {
	c.t.Helper()
	p := &process{t: c.t, cmd: c.command(program, args...), ended: make(chan struct{})}
	for name, value := range env {
		p.cmd.Env = append(p.cmd.Env, name+"="+value)
	}
	p.cmd.Stdout, p.cmd.Stderr = &p.stdout, &p.stderr
	p.began = time.Now()
	c.must(p.cmd.Start())
	go func() {
		_ = p.cmd.Wait() // its state has the exit code
		p.end = time.Now()
		close(p.ended)
	}()
	c.t.Cleanup(func() {
		_ = p.cmd.Process.Kill() // it has ended, or must
		<-p.ended
	})
	return p
}

// startUnit starts the program of a manifest, with its environment. Ports are
// replaced by free ones, secrets by the values of this test.
func (c *container) startUnit(name string) *process {
	c.t.Helper()
	u := c.units[name]
	command, ok := u.get("command")
	if !ok {
		c.t.Fatalf("no manifest %s with a command", name)
	}
	args, _ := u.get("args")
	given := ports{}
	env := map[string]string{}
	for variable, f := range u.env {
		secret, isSecret := strings.CutPrefix(f.value, "secret ")
		switch {
		case secret == "holdfast-database-url":
			env[variable] = c.url
		case isSecret:
			c.t.Fatalf("%s: the test has no value for the secret %s", f.place, secret)
		default:
			env[variable] = given.rewrite(c.t, filledIn.Replace(f.value))
		}
	}
	if u.kind != "Job" {
		env["PORT"] = given.free(c.t, u.port(c.code))
	}
	p := c.start(env, strings.TrimPrefix(command.value, "/"), strings.Fields(args.value)...)
	p.ports = given
	return p
}

// ports maps the ports of a manifest to the free ports that replace them.
type ports map[string]string

func (p ports) free(t *testing.T, port string) string {
	t.Helper()
	if p[port] == "" {
		l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		_, p[port], _ = net.SplitHostPort(l.Addr().String())
		_ = l.Close()
	}
	return p[port]
}

var endsInPort = regexp.MustCompile(`:(\d+)$`)

// rewrite replaces the port at the end of an address.
func (p ports) rewrite(t *testing.T, address string) string {
	t.Helper()
	return endsInPort.ReplaceAllStringFunc(address, func(port string) string { return ":" + p.free(t, port[1:]) })
}

// ready waits until the startup probe of the manifest passes, and returns how
// long that took.
func (p *process) ready(u *unit) time.Duration {
	p.t.Helper()
	asked, _ := u.get("startup.path")
	port, _ := u.get("startup.port")
	address := "http://127.0.0.1:" + p.ports.free(p.t, port.value) + asked.value
	client := &http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	until(p.t, address+" answers 200", func() bool {
		select {
		case <-p.ended:
			p.t.Fatalf("%s ended before it was ready:\n%s", u.name, &p.stderr)
		default:
		}
		request, err := http.NewRequestWithContext(p.t.Context(), http.MethodGet, address, http.NoBody)
		if err != nil {
			p.t.Fatal(err)
		}
		response, err := client.Do(request)
		if err != nil {
			return false
		}
		_ = response.Body.Close()
		return response.StatusCode == http.StatusOK
	})
	return time.Since(p.began)
}

// terminate sends SIGTERM. stopped waits for the end of the process, which must
// be with exit code 0, and returns how long that took. Cloud Run waits for 10 s.
func (p *process) terminate() {
	p.t.Helper()
	p.signalled = time.Now()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		p.t.Fatal(err)
	}
}

func (p *process) stopped() time.Duration {
	p.t.Helper()
	p.wait(time.Minute)
	return p.end.Sub(p.signalled)
}

// wait waits for a program to end. The exit code must be 0.
func (p *process) wait(within time.Duration) {
	p.t.Helper()
	over := time.NewTimer(within)
	defer over.Stop()
	select {
	case <-p.ended:
	case <-over.C:
		p.t.Fatalf("%s did not end within %s:\n%s", p.cmd.Path, within, &p.stderr)
	}
	if code := p.cmd.ProcessState.ExitCode(); code != 0 {
		p.t.Fatalf("%s %v: exit code %d, want 0:\n%s", p.cmd.Path, p.cmd.Args[1:], code, &p.stderr)
	}
}

// output is the output of a process so far.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// untilMax is the longest time that a test waits for a condition.
const untilMax = 5 * time.Minute

// until polls until yes returns true.
func until(t *testing.T, what string, yes func() bool) {
	t.Helper()
	over := time.NewTimer(untilMax)
	defer over.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !yes() {
		select {
		case <-tick.C:
		case <-over.C:
			t.Fatalf("not within %s: %s", untilMax, what)
		}
	}
}

func (c *container) must(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}
