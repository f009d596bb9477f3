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

	"github.com/holdfast/holdfast/chaos/finding"
)

// Tenant is a shop with a key of its own.
type Tenant struct {
	ID       uuid.UUID
	Name     string
	Key      string
	Variants []Variant
}

// Variant is something a shop sells.
type Variant struct {
	ID    string
	Stock int64
	// TTL is how many seconds a hold lasts; 0 is the service's default.
	TTL     int
	Hot     bool // pinned to the hot lane from the start
	Digital bool
	Role    Role
}

// Role is what the traffic does with a variant.
type Role int

// The roles.
const (
	// Ordinary variants are bought, changed, removed and left.
	Ordinary Role = iota
	// Sale is wanted by all and always short; the back office adds a few units now and then.
	Sale
	// Line is added one unit at a time by many, and nothing else: for the order of decisions.
	Line
	// Mover is moved between the lanes.
	Mover
)

// Variants are what a shop sells: some of each sort.
func Variants() []Variant {
	v := []Variant{
		{ID: "sale", Stock: 60, TTL: 3, Hot: true, Role: Sale},
		{ID: "line", Stock: 1_000_000, TTL: 5, Hot: true, Role: Line},
		{ID: "line short", Stock: 40, TTL: 2, Hot: true, Role: Line},
		{ID: "mover", Stock: 5000, TTL: 4, Role: Mover},
		{ID: "e/book", Digital: true},
	}
	for i := range 12 {
		v = append(v, Variant{ID: fmt.Sprintf("shirt %d", i), Stock: int64(200 + 300*i), TTL: []int{0, 2, 5, 30}[i%4]})
	}
	return v
}

// Config says who calls whom.
type Config struct {
	Tenants []*Tenant
	APIs    []*API
	// Shoppers is how many buyers act at one time; as many as half of them stand in the line besides.
	Shoppers int
	Seed     uint64
	// Patience is what the limits of time are multiplied by; 1 on a machine that has nothing else to do.
	Patience int
	Findings *finding.Findings
}

// Traffic is all that calls.
type Traffic struct {
	Record   *Record
	Recovery Recovery

	tenants  []*Tenant
	apis     []*API
	findings *finding.Findings
	http     *http.Client
	stats    stats
	phases   phases
	shoppers int
	seed     uint64
	addMax   time.Duration
	again    chan *Request // what is to be asked for a second time
	over     chan struct{} // closed when nothing new is begun any more
	end      sync.Once
}

// New makes traffic that has not begun.
func New(c Config) *Traffic {
	transport := &http.Transport{
		MaxIdleConns: 1000, MaxIdleConnsPerHost: 500, IdleConnTimeout: 30 * time.Second, DisableCompression: true,
		DialContext: (&net.Dialer{Timeout: 5 * time.Second}).DialContext,
	}
	return &Traffic{
		Record: NewRecord(c.Findings), tenants: c.Tenants, apis: c.APIs, findings: c.Findings, shoppers: c.Shoppers, seed: c.Seed,
		addMax: addMax * time.Duration(max(c.Patience, 1)),
		http:   &http.Client{Transport: transport}, again: make(chan *Request, 4096), over: make(chan struct{}),
	}
}

const (
	verbAdd = "add"
	verbSet = "set"
)

// Prepare gives the shops their stocks.
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
			r, ok := t.settle(ctx, random, &call{verb: "put stock", tenant: tenant, method: http.MethodPut, path: path("stocks", v.ID), body: stock})
			if !ok || !r.ok() {
				return fmt.Errorf("give %s a stock: %d %s %w", v.ID, r.status, r.body, r.err)
			}
		}
	}
	return nil
}

func (t *Traffic) random(who uint64) *rand.Rand {
	return rand.New(rand.NewPCG(t.seed, who)) //nolint:gosec // it has to be repeatable, not secret
}

// Run calls until End. Then nothing new is begun, and what is open is settled until ctx ends.
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
		start((*shopper).queueUp)
	}
	start((*shopper).manage)
	for _, api := range t.apis {
		start(func(s *shopper, ctx context.Context) { s.read(ctx, api) })
	}
	for range 2 {
		start((*shopper).askAgain)
	}
	all.Wait()
	t.http.CloseIdleConnections()
}

// End has nothing new begun.
func (t *Traffic) End() { t.end.Do(func() { close(t.over) }) }

func (t *Traffic) ended() bool {
	select {
	case <-t.over:
		return true
	default:
		return false
	}
}

// askers is how many requests are asked for at one time.
const askers = 8

// AskAll asks every API for requests that are final, at most so many, and returns how many it asked for. The traffic must
// have ended.
func (t *Traffic) AskAll(ctx context.Context, most int) int {
	t.Record.mu.Lock()
	asked := append([]*Request(nil), t.Record.finished...)
	t.Record.mu.Unlock()
	random := t.random(0)
	random.Shuffle(len(asked), func(i, j int) { asked[i], asked[j] = asked[j], asked[i] })
	asked = asked[:min(most, len(asked))]
	work := make(chan *Request)
	var all sync.WaitGroup
	for i := range askers {
		s := &shopper{Traffic: t, random: t.random(uint64(i))}
		all.Go(func() {
			for q := range work {
				for _, api := range t.apis {
					s.look(ctx, q, api, "")
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
