package traffic

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/holdfast/holdfast/client"
)

// Tenant is a shop with an API key.
type Tenant struct {
	ID       uuid.UUID
	Name     string
	Key      string
	Variants []Variant
}

// Variant is a variant that a shop sells.
type Variant struct {
	ID    string
	Stock int64
	// TTL is the time that a hold lasts, in seconds; 0 is the service's
	// default.
	TTL     int
	Hot     bool // pinned to the hot lane from the start
	Digital bool
	Role    Role
}

// Role is what the traffic does with a variant.
type Role int

// The roles.
const (
	// Ordinary variants are bought, changed, removed and abandoned.
	Ordinary Role = iota
	// Sale is wanted by all buyers and always short. The back office adds a few
	// units now and then.
	Sale
	// Ordered variants are only added, one unit at a time by many callers, to
	// check the order of decisions.
	Ordered
	// Mover is moved between the lanes.
	Mover
	// Sold variants are sold as kits, from an allotment, by a waiting list and in
	// parts.
	Sold
)

// Variants returns what a shop sells: some variants of each role.
func Variants() []Variant {
	v := []Variant{
		{ID: "sale", Stock: 60, TTL: 3, Hot: true, Role: Sale},
		{ID: "ordered", Stock: 1_000_000, TTL: 5, Hot: true, Role: Ordered},
		{ID: "ordered short", Stock: 40, TTL: 2, Hot: true, Role: Ordered},
		{ID: "mover", Stock: 5000, TTL: 4, Role: Mover},
		{ID: "e/book", Digital: true},
		{ID: tent, Stock: 60, TTL: 3, Role: Sold},
		{ID: peg, Stock: 400, TTL: 4, Role: Sold},
		{ID: lamp, Stock: 60, TTL: 3, Hot: true, Role: Sold},
		{ID: scarce, Stock: 3, TTL: 1, Role: Sold},
	}
	for i := range 12 {
		v = append(v, Variant{ID: fmt.Sprintf("shirt %d", i), Stock: int64(200 + 300*i), TTL: []int{0, 2, 5, 30}[i%4]})
	}
	return v
}

// Config of a [Traffic].
type Config struct {
	Tenants []*Tenant
	APIs    []*API
	// Shoppers is the number of buyers that act at the same time. Half as many
	// other callers queue for the hot variant.
	Shoppers int
	Seed     uint64
	// The factor by which timeouts are multiplied; 1 on an otherwise idle
	// machine.
	Slowdown int
	Findings *Findings
}

// Traffic is the set of all callers.
type Traffic struct {
	Record   *Record
	Recovery Recovery

	tenants  []*Tenant
	apis     []*API
	findings *Findings
	http     *http.Client
	stats    stats
	phases   phases
	shoppers int
	seed     uint64
	addMax   time.Duration
	again    chan *Request // requests that are read a second time
	over     chan struct{} // closed when no new call may begin
	end      sync.Once
}

// New makes a Traffic. Run starts it.
func New(c Config) *Traffic {
	transport := &http.Transport{
		MaxIdleConns: 1000, MaxIdleConnsPerHost: 500, IdleConnTimeout: 30 * time.Second, DisableCompression: true,
		DialContext: (&net.Dialer{Timeout: 5 * time.Second}).DialContext,
	}
	return &Traffic{
		Record: NewRecord(c.Findings), tenants: c.Tenants, apis: c.APIs, findings: c.Findings, shoppers: c.Shoppers, seed: c.Seed,
		addMax: addMax * time.Duration(max(c.Slowdown, 1)),
		http:   &http.Client{Transport: transport}, again: make(chan *Request, 4096), over: make(chan struct{}),
	}
}

const (
	verbAdd   = "add"
	verbSet   = "set"
	verbLines = "add lines"
)

// Prepare sets the stocks of the shops.
func (t *Traffic) Prepare(ctx context.Context) error {
	random := t.random(0)
	for _, tenant := range t.tenants {
		for _, v := range tenant.Variants {
			stock := map[string]any{"stock": v.Stock}
			if v.TTL > 0 {
				stock["hold_ttl_seconds"] = v.TTL
			}
			if v.Hot {
				stock["lane"] = "hot"
			}
			if v.Digital {
				stock = map[string]any{"tracked": false}
			}
			r, ok := t.settle(ctx, random, &call{verb: "put stock", tenant: tenant, method: http.MethodPut, path: client.Path("stocks", v.ID), body: stock})
			if !ok || !r.ok() {
				return fmt.Errorf("give %s a stock: %d %s %w", v.ID, r.status, r.body, r.err)
			}
		}
	}
	return nil
}

func (t *Traffic) random(who uint64) *rand.Rand {
	return rand.New(rand.NewPCG(t.seed, who)) //nolint:gosec // it must be repeatable, not secret
}

// Run makes calls until End. Then it begins no new calls, and settles the open
// ones until ctx ends.
func (t *Traffic) Run(ctx context.Context) {
	var all sync.WaitGroup
	who := uint64(0)
	start := func(act func(*shopper, context.Context)) {
		who++
		s := &shopper{Traffic: t, random: t.random(who), name: fmt.Sprint(who)}
		all.Go(func() { act(s, ctx) })
	}
	for range t.shoppers {
		start((*shopper).shop)
	}
	for range max(t.shoppers/2, 2) {
		start((*shopper).addInOrder)
	}
	for range max(t.shoppers/4, 2) {
		start((*shopper).sell)
	}
	start((*shopper).manage)
	for _, api := range t.apis {
		start(func(s *shopper, ctx context.Context) { s.read(ctx, api) })
	}
	for range 2 {
		start((*shopper).rereadFinal)
	}
	all.Wait()
	t.http.CloseIdleConnections()
}

// End stops Run from beginning new calls.
func (t *Traffic) End() { t.end.Do(func() { close(t.over) }) }

func (t *Traffic) ended() bool {
	select {
	case <-t.over:
		return true
	default:
		return false
	}
}

// readers is the number of requests that are read at the same time.
const readers = 8

// RereadAll reads up to most final requests from every API and returns how many
// it read. The traffic must have ended.
func (t *Traffic) RereadAll(ctx context.Context, most int) int {
	t.Record.mu.Lock()
	asked := append([]*Request(nil), t.Record.finished...)
	t.Record.mu.Unlock()
	random := t.random(0)
	random.Shuffle(len(asked), func(i, j int) { asked[i], asked[j] = asked[j], asked[i] })
	asked = asked[:min(most, len(asked))]
	work := make(chan *Request)
	var all sync.WaitGroup
	for i := range readers {
		s := &shopper{Traffic: t, random: t.random(uint64(i))}
		all.Go(func() {
			for q := range work {
				for _, api := range t.apis {
					s.readRequest(ctx, q, api, "")
				}
			}
		})
	}
	for _, q := range asked {
		work <- q
	}
	close(work)
	all.Wait()
	t.http.CloseIdleConnections()
	return len(asked)
}
