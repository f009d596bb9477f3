package main

import (
	"testing"
	"time"

	"github.com/holdfast/holdfast/cmd/internal/programtest"
	"github.com/holdfast/holdfast/internal/pgtest"
)

// behindWire is a worker whose database is behind a wire, once it has decided something in each lane.
func behindWire(t *testing.T, more ...string) (*programtest.Shop, *pgtest.Wire, *programtest.Inside) {
	t.Helper()
	shop := programtest.NewShop(t)
	shop.Stock("shirt", 100)
	shop.Stock("ticket", 100)
	shop.Pin("ticket")
	wire := pgtest.NewWire(t, shop.URL)
	worker := programtest.Start(t, run, shop.Env(append(more, "DATABASE_URL", wire.URL)...))
	shop.Admit("shirt", 5)
	shop.Admit("ticket", 5)
	shop.Await(programtest.Count{Done: 10, Held: 10})
	return shop, wire, worker
}

// A worker whose connections all went silent finds others.
func TestSilentConnections(t *testing.T) {
	t.Parallel()
	shop, wire, worker := behindWire(t)
	wire.Silence()
	shop.Admit("shirt", 5)
	shop.Admit("ticket", 5)
	wire.Speak()
	shop.Await(programtest.Count{Done: 20, Held: 20})
	if err := worker.Stop(); err != nil {
		t.Errorf("stop: %v", err)
	}
	shop.Verify()
}

// A worker that is stopped while its database is silent ends in time, without an error.
func TestStoppedWhileSilent(t *testing.T) {
	t.Parallel()
	_, wire, worker := behindWire(t, "STOP_WITHIN", "3s")
	wire.Silence()
	before := wire.Sent()
	programtest.Until(t, "it asks the silent database", func() bool { return wire.Sent() > before })
	began := time.Now()
	if err := worker.Stop(); err != nil {
		t.Errorf("stop: %v", err)
	}
	if took := time.Since(began); took > 8*time.Second { // 3 s and what a busy machine adds
		t.Errorf("the stop took %s", took)
	}
}
