package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast/holdfast/client"
	"github.com/holdfast/holdfast/cmd/internal/programtest"
	"github.com/holdfast/holdfast/internal/pgtest"
)

// The service is killed again and again while callers of the Go client reserve.
// Every call ends with an outcome, and has one effect. HOLDFAST_KILLS is how often;
// make clients sets 200.
func TestCallersOutliveKills(t *testing.T) {
	t.Parallel()
	const callers = 64
	kills, err := strconv.Atoi(os.Getenv("HOLDFAST_KILLS"))
	if err != nil {
		kills = 3
	}
	shop := programtest.NewFixture(t)
	port := freePort(t)
	start := func() (*programtest.Process, service) {
		p := programtest.StartProcess(t, shop.Env("LOG_LEVEL", "error"), "run", "--port", port)
		return p, ready(t, p.Stdout)
	}
	program, s := start()
	s.call("PUT", "/v1/stocks/crowd", `{"stock":1000000,"hold_ttl_seconds":3600}`, 200)
	c, err := client.New(client.Config{URLs: []string{s.url}, Key: s.key, MaxRetries: 300, MaxRetryWait: time.Second})
	pgtest.Must(t, err)
	t.Cleanup(c.Close)

	var over atomic.Bool
	var held atomic.Int64
	var crowd sync.WaitGroup
	for caller := range callers {
		crowd.Go(func() {
			for n := 0; !over.Load(); n++ {
				r, err := c.Add(t.Context(), fmt.Sprint("crowd-", caller, "-", n), "crowd", 1, &client.CallOpts{Wait: 5 * time.Second})
				if err == nil && !r.Finished() {
					r, err = c.Wait(t.Context(), r.RequestID, 5*time.Minute)
				}
				if err != nil || r.Status != "done" {
					t.Errorf("%+v, %v", r, err)
					return
				}
				held.Add(1)
			}
		})
	}
	for range kills {
		enough := held.Load() + rand.Int64N(4*callers)
		pgtest.Until(t, "calls have outcomes", func() bool { return held.Load() > enough || t.Failed() })
		program.Signal(syscall.SIGKILL)
		program.Wait()
		program, _ = start()
	}
	over.Store(true)
	crowd.Wait()
	if n := s.call("GET", "/v1/stocks/crowd", "", 200)["reserved"]; n != float64(held.Load()) {
		t.Errorf("%v are reserved by %d calls", n, held.Load())
	}
	t.Logf("%d kills, %d calls, each with an outcome", kills, held.Load())
	shop.Verify()
}
