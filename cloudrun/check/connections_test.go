package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	callers = 60 // at the same time
	rounds  = 10 // of each caller: a unit is added, the cart is read
)

// Under load, and with the environment of its manifest, no program opens more
// connections than Terraform's precondition counts for it.
func TestConnections(t *testing.T) {
	counted := countedConnections(t)
	c := newContainer(t)
	pass := func(name string) {
		c.startUnit(name).wait(time.Minute)
		all := 0
		for _, n := range c.sessions.take(t) { // nothing else runs
			all += n
		}
		wantAtMost(t, name, all, counted)
	}
	pass("migrate")

	api, worker := c.startUnit("api"), c.startUnit("worker")
	api.ready(c.units["api"])
	worker.ready(c.units["worker"])
	address := "http://127.0.0.1:" + api.ports.free(t, c.units["api"].port(c.code))
	shops := []*caller{c.newCaller(address, "first"), c.newCaller(address, "second")}
	load(t, shops)
	worker.terminate()
	worker.stopped()
	for i := range 100 { // work for the drain
		shops[i%2].want(202, "POST", fmt.Sprintf("/v1/carts/late-%d/items", i), fmt.Sprintf(`{"variant_id":"shoe-%d","quantity":1}`, i%5))
	}
	api.terminate()
	api.stopped()
	most := c.sessions.take(t)
	wantAtMost(t, "api", most["holdfast-api"], counted)
	wantAtMost(t, "worker", most["holdfast-worker"], counted)

	for _, name := range jobs(c)[1:] { // all jobs but migrate
		pass(name)
	}
}

// load makes the calls: they add units to carts in both lanes, wait for some of
// the outcomes, and read.
func load(t *testing.T, shops []*caller) {
	t.Helper()
	for _, shop := range shops {
		for i := range 5 {
			lane := map[bool]string{true: "hot", false: "auto"}[i == 0]
			shop.want(200, "PUT", fmt.Sprintf("/v1/stocks/shoe-%d", i), `{"stock":1000000,"lane":"`+lane+`"}`)
		}
	}
	var accepted, refused atomic.Int64
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() {
			shop := shops[i%len(shops)]
			for n := range rounds {
				cart := fmt.Sprintf("/v1/carts/cart-%d-%d", i, n)
				prefer := map[bool]string{true: "wait=5", false: "respond-async"}[n%4 == 0]
				added, answer := shop.call("POST", cart+"/items", fmt.Sprintf(`{"variant_id":"shoe-%d","quantity":1}`, n%5), "Prefer", prefer)
				switch {
				case added/100 == 2:
					accepted.Add(1)
				case added == 429 || added == 503: // the admission protects a busy machine
					refused.Add(1)
				default:
					t.Errorf("an add was answered %d %s", added, answer)
				}
				if read, answer := shop.call("GET", cart, ""); read != 200 && read != 503 {
					t.Errorf("a read was answered %d %s", read, answer)
				}
			}
		})
	}
	all.Wait()
	note("%d adds of %d concurrent callers were accepted, %d refused", accepted.Load(), callers, refused.Load())
	if accepted.Load() == 0 {
		t.Error("no add was accepted")
	}
}

// countedConnections are the connections that the precondition counts for one
// process of each unit, in every home.
func countedConnections(t *testing.T) map[string]int {
	t.Helper()
	r := &report{}
	homes, err := readTerraform(os.DirFS(repository), r)
	if err != nil || len(homes) == 0 || len(r.findings) > 0 {
		t.Fatalf("%v\n%s", err, lines(r.findings))
	}
	counted := map[string]int{}
	for _, home := range homes {
		own := map[string]int{}
		for name := range home.locals["connections"].AsValueMap() {
			n, known := text(home.locals["connections"], name)
			if own[name], err = strconv.Atoi(n); err != nil || !known {
				t.Fatalf("local.connections has %q for %s", n, name)
			}
		}
		if len(counted) > 0 && !maps.Equal(counted, own) {
			t.Fatalf("the homes count differently: %v and %v", counted, own)
		}
		counted = own
	}
	return counted
}

// wantAtMost compares the largest number of sessions that a program had with
// the number that the precondition counts.
func wantAtMost(t *testing.T, name string, most int, counted map[string]int) {
	t.Helper()
	note("%s: %d connections at most, and the precondition counts %d", name, most, counted[name])
	if most == 0 || most > counted[name] {
		t.Errorf("%s had %d connections, want 1 to %d", name, most, counted[name])
	}
}

// sessions counts the rows of pg_stat_activity of one database by
// application_name whenever a session begins. Between two counts the number can
// only decrease.
type sessions struct {
	mu       sync.Mutex
	admin    *pgx.Conn
	database string
	most     map[string]int
	now      int
	err      error
}

const sessionsSQL = `
SELECT application_name, count(*) FROM pg_stat_activity WHERE datname = $1 GROUP BY application_name`

func (s *sessions) sample() {
	s.mu.Lock()
	defer s.mu.Unlock()
	rows, err := s.admin.Query(context.Background(), sessionsSQL, s.database)
	if err == nil {
		var name string
		var n int
		s.now = 0
		_, err = pgx.ForEachRow(rows, []any{&name, &n}, func() error {
			s.most[name] = max(s.most[name], n)
			s.now += n
			return nil
		})
	}
	if err != nil {
		s.err = err
	}
}

// take waits until no session is left. It returns the largest number of
// sessions of each program since the last call.
func (s *sessions) take(t *testing.T) map[string]int {
	t.Helper()
	until(t, "all sessions have ended", func() bool {
		s.sample()
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.err != nil {
			t.Fatal(s.err)
		}
		return s.now == 0
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	most := maps.Clone(s.most)
	clear(s.most)
	return most
}

func (s *sessions) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, _ = s.admin.Exec(context.Background(), "DROP DATABASE "+s.database+" WITH (FORCE)") // a private server has ended already
	_ = s.admin.Close(context.Background())
}
