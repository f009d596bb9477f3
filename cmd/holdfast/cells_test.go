package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/holdfast/holdfast/cmd/internal/boot"
	"github.com/holdfast/holdfast/cmd/internal/programtest"
	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/internal/sleep"
)

// twoCells returns the environment of two cells, whose databases are migrated.
func twoCells(t *testing.T) map[string]string {
	t.Helper()
	return map[string]string{
		"CELLS": fmt.Sprintf("eu=%s,us=%s", pgtest.URL(t), pgtest.URL(t)), "PORT": "0", "LOG_LEVEL": "warn", "SWEEP_SCHEDULE": "@every 1s",
	}
}

// command runs the operator's tool, which must succeed, and returns what it
// printed.
func command(t *testing.T, env map[string]string, args ...string) string {
	t.Helper()
	stdout, stderr, err := programtest.Once(t, run, env, args...)
	if err != nil {
		t.Fatalf("holdfast %s: %v\n%s%s", strings.Join(args, " "), err, stdout, stderr)
	}
	return strings.TrimSpace(stdout)
}

// keyIn makes a tenant with a key in a cell.
func keyIn(t *testing.T, env map[string]string, cell, tenant string) string {
	t.Helper()
	return command(t, env, "--cell", cell, "keys", "create", "--tenant", tenant, "--create-tenant", "--scopes", "cart,stock,ops")
}

// wantMetrics checks that what is counted in a cell has its name.
func wantMetrics(t *testing.T, page string) {
	t.Helper()
	for _, series := range []string{`holdfast_decision_requests_total{cell="us",lane="normal"`, `holdfast_admission_requests_total{cell="eu"`, `holdfast_verb_duration_seconds_count{cell="us"`} {
		if !strings.Contains(page, series) {
			t.Errorf("the metrics lack %s", series)
		}
	}
}

// wantCells checks which cells the overview has, which of them are available, and
// which has the tenant of the key.
func wantCells(t *testing.T, s service, want string) {
	t.Helper()
	pgtest.Until(t, "the overview has the cells "+want, func() bool {
		got := ""
		all, _ := s.call(http.MethodGet, "/v1/ops/overview", "", http.StatusOK)["cells"].([]any)
		for _, cell := range all {
			c, _ := cell.(map[string]any)
			got += fmt.Sprintln(c["cell"], c["available"], c["own"])
		}
		return strings.ReplaceAll(got, "\n", "; ") == want
	})
	if own, _ := s.call(http.MethodGet, "/v1/key", "", http.StatusOK)["cell"].(string); own == "" || !strings.Contains(want, own+" true true") {
		t.Errorf("the key is in the cell %q, want %s", own, want)
	}
}

// One process serves two cells: each call reaches the cell of its key, and each
// cell decides and sweeps its own.
func TestCells(t *testing.T) {
	t.Parallel()
	env := twoCells(t)
	keys := map[string]string{"eu": keyIn(t, env, "eu", "shop"), "us": keyIn(t, env, "us", "shop")}
	program := programtest.StartProcess(t, maps.Clone(env), "run") // with metrics of its own
	s := ready(t, program.Stdout)
	stocks := map[string]float64{"eu": 10, "us": 20}
	for cell, key := range keys {
		s.key = key
		s.call(http.MethodPut, "/v1/stocks/shirt", fmt.Sprintf(`{"stock":%v}`, stocks[cell]), http.StatusOK)
	}
	for cell, key := range keys {
		s.key = key
		s.call(http.MethodPost, "/v1/carts/c/items", `{"variant_id":"shirt","quantity":3}`, http.StatusAccepted, http.StatusOK)
		pgtest.Until(t, "the request is decided", func() bool {
			return s.call(http.MethodGet, "/v1/stocks/shirt", "", http.StatusOK)["available"] == stocks[cell]-3
		})
	}
	s.key = strings.Replace(keys["eu"], "hf_", "hf_0", 1)
	s.call(http.MethodGet, "/v1/stocks/shirt", "", http.StatusUnauthorized)
	if state := s.call(http.MethodGet, "/readyz", "", http.StatusOK); fmt.Sprint(state["cells"]) != "map[eu:ok us:ok]" {
		t.Errorf("/readyz: %v", state)
	}

	s.key = keys["us"]
	wantCells(t, s, "eu true false; us true true; ")
	// A ticket names its cell, whose state the connection receives.
	ticket, _ := s.call(http.MethodPost, "/v1/live/tickets", "", http.StatusCreated)["ticket"].(string)
	if !strings.HasPrefix(ticket, "us.") {
		t.Errorf("a ticket does not name its cell")
	}
	conn, _, err := websocket.Dial(t.Context(), s.url+"/v1/live?ticket="+ticket, nil) //nolint:bodyclose // the response has no body
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.CloseNow() }()
	if err := conn.Write(t.Context(), websocket.MessageText, []byte(`{"subscribe":"projection.stocks.availability.shirt"}`)); err != nil {
		t.Fatal(err)
	}
	for available := 0.; available != 17; {
		_, text, err := conn.Read(t.Context())
		if err != nil {
			t.Fatalf("at %v available: %v", available, err)
		}
		var f struct{ Payload struct{ Available float64 } }
		if err := json.Unmarshal(text, &f); err != nil {
			t.Fatal(err)
		}
		available = f.Payload.Available
	}

	wantMetrics(t, s.text("/metrics"))
	if report := command(t, env, "verify"); strings.Count(report, "Cell ") != 2 {
		t.Errorf("verify does not report two cells:\n%s", report)
	}
	if text := command(t, env, "cells", "verify"); !strings.Contains(text, "2 cells: all holds") {
		t.Error(text)
	}
	if text := command(t, env, "cells"); !strings.Contains(text, "eu") || !strings.Contains(text, "us") {
		t.Error(text)
	}
	_, _, err = programtest.Once(t, run, env, "tenants")
	if usage, is := errors.AsType[*boot.UsageError](err); !is || !strings.Contains(usage.Message, "--cell") {
		t.Errorf("%v, want the command to ask for a cell", err)
	}
	program.Signal(syscall.SIGTERM)
	if code := program.Wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// Each mistake is one sentence.
func TestCellsMisconfigured(t *testing.T) {
	t.Parallel()
	one, old := pgtest.URL(t), pgtest.URL(t)
	pgtest.Exec(t, pgtest.Open(t, old), `DELETE FROM goose_db_version WHERE version_id > 0`)
	for name, tc := range map[string]struct{ cells, cell, want string }{
		"one database by two names": {"eu=" + one + ",us=" + one + "&application_name=x", "", "CELLS gives the cells eu and us the same database, by two names"},
		"not migrated":              {"eu=" + one + ",us=" + old, "", "cell us: the database lacks migrations"},
		"unreachable":               {"eu=" + one + ",us=postgres://127.0.0.1:1/none", "", "cell us: connect to the database that CELLS names"},
		"unknown":                   {"eu=" + one, "us", "--cell us: CELLS does not name it"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			args := []string{"cells", "list"}
			if tc.cell != "" {
				args = append(args, "--cell", tc.cell)
			}
			_, _, err := programtest.Once(t, run, map[string]string{"CELLS": tc.cells, "DATABASE_WAIT_MAX": "0s"}, args...)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%v, want %q", err, tc.want)
			}
		})
	}
}

// cellCaller adds to carts of one tenant until it is stopped.
type cellCaller struct {
	service
	name     string
	accepted map[string]string // the request of each key
	refused  int               // while the tenant was moving
}

// add sends a request under the key, which is the cart too.
func (c *cellCaller) add(key string) map[string]any {
	r, err := http.NewRequestWithContext(c.t.Context(), http.MethodPost, c.url+"/v1/carts/"+key+"/items", strings.NewReader(`{"variant_id":"shirt","quantity":1}`))
	pgtest.Must(c.t, err)
	r.Header.Set("Idempotency-Key", key)
	return c.do(r, http.StatusAccepted, http.StatusOK, http.StatusServiceUnavailable)
}

func (c *cellCaller) run(stopped *atomic.Bool) {
	last := ""
	for n := 0; !stopped.Load(); n++ {
		key := fmt.Sprintf("%s-%p-%d", c.name, c, n)
		switch answer := c.add(key); {
		case answer["request_id"] != nil:
			c.accepted[key], last = answer["request_id"].(string), key
		case answer["code"] == "tenant_moving" && c.name == "moves":
			c.refused++
			if again := c.add(last); last != "" && again["request_id"] != c.accepted[last] && again["code"] != "tenant_moving" {
				c.t.Errorf("%s again while it moves: %v", last, again)
			}
		default:
			c.t.Errorf("%s: %v", key, answer)
			return
		}
		_ = sleep.For(c.t.Context(), 20*time.Millisecond)
	}
}

// A tenant moves while callers add to its carts over HTTP, and a neighbour's
// callers notice nothing. Each call is answered by one of the cells, or with 503
// tenant_moving, and nothing that was accepted is lost.
func TestCellsMove(t *testing.T) {
	t.Parallel()
	env := twoCells(t)
	s := ready(t, programtest.Start(t, run, env, "run").Stdout)
	callers := []*cellCaller{}
	for _, name := range []string{"moves", "stays"} {
		own := s
		own.key = keyIn(t, env, "eu", name)
		own.call(http.MethodPut, "/v1/stocks/shirt", `{"stock":100000}`, http.StatusOK)
		for range 3 {
			callers = append(callers, &cellCaller{service: own, name: name, accepted: map[string]string{}})
		}
	}
	var stopped atomic.Bool
	var running sync.WaitGroup
	for _, c := range callers {
		running.Go(func() { c.run(&stopped) })
	}
	for _, to := range []string{"us", "eu"} {
		if text := command(t, env, "cells", "move", "moves", "--to", to, "--dry-run"); !strings.Contains(text, "would move") {
			t.Error(text)
		}
		t.Log(command(t, env, "cells", "move", "moves", "--to", to, "--linger", "5s", "--pause-max", "2m"))
	}
	stopped.Store(true)
	running.Wait()
	for _, c := range callers {
		if len(c.accepted) == 0 {
			t.Errorf("nothing was accepted of %s", c.name)
		}
		for key, id := range c.accepted {
			if again := c.add(key); again["request_id"] != id {
				t.Errorf("%s: %v, want the request %s", key, again, id)
			}
		}
		t.Logf("%s: %d accepted, %d refused while it moved", c.name, len(c.accepted), c.refused)
	}
	if report := command(t, env, "verify"); strings.Count(report, "Cell ") != 2 {
		t.Error(report)
	}
	if text := command(t, env, "cells", "verify"); !strings.Contains(text, "2 cells: all holds") {
		t.Error(text)
	}
	if text := command(t, env, "cells", "give-up", "moves"); !strings.Contains(text, "is in eu, and not on its way") {
		t.Error(text)
	}
}

// The server of one cell is killed under load, and started again. The other cell
// answers every call, and nothing that was accepted in the first one is lost.
func TestCellDown(t *testing.T) {
	t.Parallel()
	postgres, url := restartable(t)
	env := map[string]string{"CELLS": "eu=" + pgtest.URL(t) + ",us=" + url, "PORT": "0", "LOG_LEVEL": "error"}
	command(t, env, "migrate")
	s := ready(t, programtest.Start(t, run, env, "run").Stdout)
	callers := map[string]*cellCaller{}
	for _, cell := range []string{"eu", "us"} {
		own := s
		own.key = keyIn(t, env, cell, "shop")
		own.call(http.MethodPut, "/v1/stocks/shirt", `{"stock":100000}`, http.StatusOK)
		callers[cell] = &cellCaller{service: own, name: cell, accepted: map[string]string{}}
	}
	made, unavailable := 0, 0
	call := func(times int) {
		for range times {
			made++
			for cell, c := range callers {
				key := fmt.Sprint(cell, "-", made)
				switch answer := c.add(key); {
				case answer["request_id"] != nil:
					c.accepted[key] = answer["request_id"].(string)
				case cell == "eu":
					t.Errorf("the cell that is up: %v", answer)
				case answer["code"] == "cell_unavailable":
					unavailable++
				}
			}
		}
	}
	call(50)
	if err := postgres.Stop(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	pgtest.Until(t, "the cell is known to be down", func() bool {
		call(10)
		return unavailable > 0
	})
	call(20)
	s.key = callers["eu"].key
	if state := s.call(http.MethodGet, "/health", "", http.StatusOK); fmt.Sprint(state["cells"]) != "map[eu:ok us:not_ready]" {
		t.Errorf("/health: %v", state)
	}
	wantCells(t, s, "eu true true; us false false; ")
	if err := postgres.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	accepted := len(callers["us"].accepted)
	pgtest.Until(t, "the cell serves again", func() bool {
		call(5)
		return len(callers["us"].accepted) > accepted
	})
	for cell, c := range callers {
		for _, id := range c.accepted {
			pgtest.Until(t, "what was accepted is decided", func() bool {
				return c.call(http.MethodGet, "/v1/requests/"+id, "", http.StatusOK)["status"] == "done"
			})
		}
		t.Logf("%s: %d of %d accepted", cell, len(c.accepted), made)
	}
	if report := command(t, env, "verify"); strings.Count(report, "Cell ") != 2 {
		t.Error(report)
	}
}
