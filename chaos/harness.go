package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/internal/chaos/stage"
	"github.com/holdfast/holdfast/internal/chaos/traffic"
	"github.com/holdfast/holdfast/internal/sleep"
	"github.com/holdfast/holdfast/internal/tenants"
)

// harness is the set-up of a storm: Postgres, the proxy, and the programs.
type harness struct {
	options
	stderr   io.Writer
	findings *traffic.Findings
	line     stage.Timeline

	dir      string
	wire     *stage.Wire
	routes   map[string]*stage.Route // by program
	closed   map[string]*atomic.Bool // by program: in a rollout, set while no call is sent to it
	postgres *stage.Postgres
	programs map[string]*stage.Program
	files    []*os.File      // the files of the logs, if logs are kept
	own      *stage.Route    // of the harness and the one-shot program, affected only by faults of Postgres
	dbs      []*pgxpool.Pool // of the harness, by cell; one without cells
}

// db is the pool of the first cell.
func (t *harness) db() *pgxpool.Pool { return t.dbs[0] }

// databases are the databases of the cells, which have their names; without cells
// there is one.
func (t *harness) databases() []string {
	names := []string{stage.Database}
	for i := 2; i <= t.cells; i++ {
		names = append(names, stage.Database+strconv.Itoa(i))
	}
	return names
}

// rolloutStop is how long Cloud Run waits between SIGTERM and SIGKILL.
const rolloutStop = 10 * time.Second

const (
	tenantCount  = 3
	readyTimeout = 45 * time.Second
)

// open builds and starts everything.
func open(ctx context.Context, o options, stderr io.Writer) (_ *harness, err error) {
	t := &harness{
		options: o, stderr: stderr, findings: traffic.NewFindings(), wire: stage.NewWire(),
		routes: make(map[string]*stage.Route), closed: make(map[string]*atomic.Bool), programs: make(map[string]*stage.Program),
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, t.close())
		}
	}()
	if t.dir, err = os.MkdirTemp("", "hfchaos-"); err != nil {
		return nil, err
	}
	if err := os.Chmod(t.dir, 0o711); err != nil { // Postgres may run as another user
		return nil, err
	}
	if err := t.build(ctx); err != nil {
		return nil, err
	}
	log, err := t.logFile("postgres")
	if err != nil {
		return nil, err
	}
	if t.postgres, err = stage.StartPostgres(ctx, t.dir, t.wire, log, t.databases()[1:]...); err != nil {
		return nil, err
	}
	t.postgres.Log.Forget() // the errors of connections that it rejected while it started
	if t.own, err = t.wire.NewRoute(); err != nil {
		return nil, err
	}
	if out, err := t.oneshot(ctx, t.first(), "migrate"); err != nil {
		return nil, fmt.Errorf("%w\n%s", err, out)
	}
	for _, name := range t.databases() {
		db, err := pgxpool.New(ctx, t.postgres.URL(t.own, name)+"&pool_max_conns=6&application_name=chaos")
		if err != nil {
			return nil, err
		}
		t.dbs = append(t.dbs, db)
	}
	if t.upgrade != "" {
		if err := t.fill(ctx); err != nil {
			return nil, err
		}
	}
	err = t.startPrograms(ctx)
	return t, err
}

func (t *harness) printf(format string, args ...any) { fmt.Fprintf(t.stderr, format+"\n", args...) }

// environment is the environment of a program that connects through a route.
func (t *harness) environment(route *stage.Route) []string {
	databases := "DATABASE_URL=" + t.postgres.URL(route, stage.Database)
	if t.cells > 0 {
		var list []string
		for _, name := range t.databases() {
			list = append(list, name+"="+t.postgres.URL(route, name))
		}
		databases = "CELLS=" + strings.Join(list, ",")
	}
	env := []string{databases, "SWEEP_SCHEDULE=@every 2s", "PURGE_SCHEDULE=@every 10s", "LOG_LEVEL=info", "GORACE=halt_on_error=0",
		"DATABASE_WAIT_MAX=" + t.timeout(15*time.Second).String(), "STOP_WITHIN=" + min(t.timeout(9*time.Second), 10*time.Minute).String()}
	if t.upgrade != "" {
		env = append(env, "REQUEST_RETENTION=8760h")
	}
	if t.metered {
		env = append(env, "METERED_COMMANDS_ENABLED=true", "TENANT_BUDGET=1000000/1m", "CUSTOMER_BUDGET=100000/1m")
	}
	return env
}

// oneshot runs one command of a version's one-shot program and returns its
// output.
func (t *harness) oneshot(ctx context.Context, version, pass string) ([]byte, error) {
	return t.command(ctx, version, "oneshot", pass)
}

// command runs a program that ends when its work is done, and returns its output.
func (t *harness) command(ctx context.Context, version, program string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, t.program(version, program), args...)
	cmd.Env = t.environment(t.own)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return out, fmt.Errorf("%s %s: %w", program, strings.Join(args, " "), err)
	}
	return out, nil
}

// startPrograms starts two of each, and waits until they are ready.
func (t *harness) startPrograms(ctx context.Context) error {
	for _, name := range stage.Programs {
		route, err := t.wire.NewRoute()
		if err != nil {
			return err
		}
		port, err := stage.FreePort(ctx)
		if err != nil {
			return err
		}
		env := append(t.environment(route), "PORT="+strconv.Itoa(port))
		address := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
		p := stage.NewProgram(name, address, t.program(t.first(), kind(name)), env, t.exited)
		p.StopWithin = t.timeout(stopWithin)
		if t.rollout || t.upgrade != "" {
			p.StopWithin = t.timeout(rolloutStop)
		}
		if p.Log.To, err = t.logFile(name); err != nil {
			return err
		}
		t.routes[name], t.programs[name], t.closed[name] = route, p, new(atomic.Bool)
		if err := p.Start(); err != nil {
			return err
		}
	}
	return t.ready(ctx)
}

// kind is the program, api or worker, of a process's name.
func kind(name string) string {
	kind, _, _ := strings.Cut(name, "-")
	return kind
}

// logFile creates the file of a log, or returns nil if no logs are kept.
func (t *harness) logFile(name string) (io.Writer, error) {
	if t.logs == "" {
		return nil, nil
	}
	if err := os.MkdirAll(t.logs, 0o750); err != nil {
		return nil, fmt.Errorf("keep the logs: %w", err)
	}
	file, err := os.Create(filepath.Join(t.logs, name+".log"))
	if err != nil {
		return nil, fmt.Errorf("keep the log of %s: %w", name, err)
	}
	t.files = append(t.files, file)
	return file, nil
}

// stopWithin is how long a program may take to stop: STOP_WITHIN, and 3 s for
// the process to end.
const stopWithin = 9*time.Second + 3*time.Second

// timeout multiplies a timeout by the factor for this machine.
func (t *harness) timeout(limit time.Duration) time.Duration {
	return limit * time.Duration(t.slowdown)
}

const (
	ruleExit   = "no process exits unexpectedly"
	ruleStop   = "a program stops on SIGTERM, with exit code 0"
	ruleSweep  = "a sweep succeeds while no fault is active"
	ruleLog    = "Postgres's log has no error that the faults do not explain"
	ruleVolume = "the programs' logs of an outage can be read"
	ruleCrash  = "no panic and no data race"
	ruleReady  = "everything is ready soon after the storm"
	ruleDrain  = "everything is decided soon after the storm"
	ruleMove   = "a move of a tenant ends, if it is repeated after faults"
	ruleCells  = "cells verify finds nothing"
	ruleServed = "a rollout leaves at most 1 % of the calls without an answer other than 503"
)

// exited reports a program that ended unexpectedly.
func (t *harness) exited(e stage.Exit) { t.findings.Add(ruleExit, "%s", e) }

// ready waits until every program reports that it is ready.
func (t *harness) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, t.timeout(readyTimeout))
	defer cancel()
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	for _, name := range stage.Programs {
		for {
			err := ask(ctx, client, t.programs[name].Address)
			if err == nil {
				break
			}
			if sleep.For(ctx, 50*time.Millisecond) != nil {
				return fmt.Errorf("%s is not ready within %s: %w; its last lines:\n%s", name, t.timeout(readyTimeout), err, strings.Join(t.programs[name].Log.Last(), "\n"))
			}
		}
	}
	return nil
}

func ask(ctx context.Context, client *http.Client, address string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/readyz", http.NoBody)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("/readyz is answered %s", response.Status)
	}
	return nil
}

// shops creates the tenants and their keys.
func (t *harness) shops(ctx context.Context) (shops []*traffic.Tenant, err error) {
	for i := range tenantCount {
		name, db := fmt.Sprint("shop ", i+1), t.dbs[i%len(t.dbs)]
		tenant, err := tenants.Ensure(ctx, db, name)
		if err != nil {
			return nil, err
		}
		key, _, err := tenants.CreateKey(ctx, db, tenant.TenantID, "chaos", []tenants.Scope{tenants.ScopeCart, tenants.ScopeStock})
		if err != nil {
			return nil, err
		}
		shops = append(shops, &traffic.Tenant{ID: tenant.TenantID, Name: name, Key: key, Variants: traffic.Variants()})
	}
	return shops, nil
}

// close ends everything that still runs.
func (t *harness) close() error {
	var errs []error
	for _, p := range t.programs {
		errs = append(errs, p.Close())
	}
	for _, db := range t.dbs {
		db.Close()
	}
	t.wire.Close()
	if t.postgres != nil {
		errs = append(errs, t.postgres.Close())
	}
	for _, file := range t.files {
		errs = append(errs, file.Close())
	}
	return errors.Join(append(errs, os.RemoveAll(t.dir))...)
}
