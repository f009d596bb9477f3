package httpapi

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/internal/carts"
	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/internal/tenants"
)

// behindWire gives the service a pool whose connections use a proxy, and short
// timeouts.
func (s *shop) behindWire() *pgtest.Wire {
	s.t.Helper()
	wire := pgtest.NewWire(s.t, s.db.Config().ConnString())
	config, err := pgxpool.ParseConfig(wire.URL)
	s.must(err)
	config.MaxConns = 20
	pool, err := pgxpool.NewWithConfig(s.t.Context(), config)
	s.must(err)
	s.t.Cleanup(func() { wire.CutAll(); pool.Close() })
	s.service.pool = pool
	s.service.bounds = bounds{
		authenticate: 300 * time.Millisecond, attempt: 700 * time.Millisecond, request: 3 * time.Second, grace: 300 * time.Millisecond,
	}
	groups, err := carts.New(pool, carts.Config{AttemptTimeout: s.service.bounds.attempt})
	s.must(err)
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = groups.Run(ctx) })
	s.t.Cleanup(func() { stop(); running.Wait() })
	s.service.groups = groups
	return wire
}

// The answer to a commit is swallowed, and the connection stays open. A call
// that can be repeated is repeated, and has one effect. Any other call is
// answered with outcome_unknown.
func TestSwallowedCommit(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.stock("shirt", `{"stock":10}`)
	wire := s.behindWire()
	wire.SilenceAfter("commit", 1)
	s.call(200, "POST", "/v1/stocks/shirt/adjust", `{"delta":1}`, keyHeader, "k")
	s.holds("11")
	wire.SilenceAfter("commit", 1)
	s.call(200, "PUT", "/v1/stocks/shirt", `{"stock":20}`)
	s.holds("20")
	wire.SilenceAfter("commit", 1)
	golden(t, "outcome_unknown", s.call(503, "POST", "/v1/stocks/shirt/adjust", `{"delta":1}`))
	s.holds("21")
}

// The same is true of a verb in a group. A removal whose commit is not answered
// is made again under its key and has one effect, or its outcome is unknown.
func TestSwallowedCommitOfGroup(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.stock("shirt", `{"stock":10}`)
	for _, cart := range []string{"a", "b"} {
		s.call(202, "POST", "/v1/carts/"+cart+"/items", `{"variant_id":"shirt","quantity":3}`)
	}
	s.decide()
	reserved := func(want int64) {
		t.Helper()
		if got := s.count(`SELECT reserved FROM inventory_stocks`); got != want {
			t.Errorf("%d are reserved, want %d", got, want)
		}
	}
	wire := s.behindWire()
	wire.SilenceAfter("commit\x00", 1)
	removed := s.call(200, "DELETE", "/v1/carts/a/items/shirt", "", keyHeader, "k")
	if n := removed.object(t)["released"]; n != 3.0 {
		t.Errorf("%v units were released, want 3", n)
	}
	reserved(3)
	wire.SilenceAfter("commit\x00", 1)
	s.call(503, "DELETE", "/v1/carts/b/items/shirt", "")
	reserved(0)
}

// If a database becomes silent before a commit, nothing has happened, and the
// call is tried on another connection.
func TestSilentBeforeCommit(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.stock("shirt", `{"stock":10}`)
	wire := s.behindWire()
	wire.SilenceAfter("begin", 1)
	s.call(200, "POST", "/v1/stocks/shirt/adjust", `{"delta":1}`)
	s.holds("11")
}

// While the database is silent, every call is answered, and the answer allows a
// retry.
func TestSilentDatabase(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.stock("shirt", `{"stock":10}`)
	id := s.call(202, "POST", "/v1/carts/c/items", `{"variant_id":"shirt","quantity":1}`).text(t, "request_id")
	wire := s.behindWire()
	wire.Silence()
	for _, call := range [][]string{
		{"POST", "/v1/stocks/shirt/adjust", `{"delta":1}`},
		{"PUT", "/v1/stocks/shirt", `{"stock":20}`},
		{"GET", "/v1/stocks/shirt", ""},
		{"GET", "/v1/requests/" + id, ""},
		{"POST", "/v1/carts/c/checkout", ""},
	} {
		s.refused(overloaded, call[0], call[1], call[2])
	}
	s.service.keys = tenants.NewAuthenticator(s.service.pool, tenants.Config{})
	s.refused(overloaded, "GET", "/v1/stocks/shirt", "")
	wire.Speak()
	s.holds("10")
}
