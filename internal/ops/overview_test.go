package ops_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/internal/lanes"
	"github.com/holdfast/holdfast/internal/ops"
	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/internal/queues"
	"github.com/holdfast/holdfast/internal/requestrows"
	"github.com/holdfast/holdfast/internal/testkit"
	"github.com/holdfast/holdfast/requests"
)

var update = flag.Bool("update", false, "write the golden files instead of comparing with them")

// scriptName is the id of a variant that a careless page would run.
const scriptName = "<script>alert(1)</script>"

// fixture is a database with a normal lane and one tenant.
type fixture struct {
	*testkit.Fixture
	lane *queues.Lane
}

func newFixture(t *testing.T, db *pgxpool.Pool) *fixture {
	t.Helper()
	b := testkit.On(t, db, lanes.Normal)
	return &fixture{Fixture: b, lane: b.Lane(queues.LaneConfig{})}
}

// signal records an arrival rate, as an API process does.
func (s *fixture) signal(tenant uuid.UUID, variant string, rate float64) {
	s.TB.Helper()
	s.Exec(`INSERT INTO hot_signals (tenant_id, variant_id, source, rate) VALUES ($1, $2, $3, $4)`, tenant, variant, uuid.New(), rate)
}

// decided submits a request and lets it be decided.
func (s *fixture) decided(cart, variant string, quantity int32) requests.View {
	s.TB.Helper()
	r := s.Submit(cart, variant, quantity)
	s.Tick(s.lane)
	return s.Get(r)
}

func (s *fixture) read(config ops.Config) (state ops.Overview, body string) {
	s.TB.Helper()
	raw, err := ops.NewReader(s.DB, config).Read(s.TB.Context(), s.Tenant)
	pgtest.Must(s.TB, err)
	pgtest.Must(s.TB, json.Unmarshal(raw, &state))
	return state, string(raw)
}

var (
	idForm      = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)
	secondsForm = regexp.MustCompile(`"(oldest_seconds|lag_seconds|decided_per_second)":[0-9.]+`)
	waitForm    = regexp.MustCompile(`for \d+ s`)
)

// masked replaces the ids by numbers, and the measured times by 0.
func masked(body string) json.RawMessage {
	seen := map[string]string{}
	body = idForm.ReplaceAllStringFunc(body, func(id string) string {
		if seen[id] == "" {
			seen[id] = fmt.Sprintf("id %d", len(seen)+1)
		}
		return seen[id]
	})
	body = waitForm.ReplaceAllString(body, "for 0 s")
	return json.RawMessage(secondsForm.ReplaceAllString(body, `"$1":0`))
}

// The overview of a shop with one of everything. A variant's id is data, also
// one that looks like a script.
func TestOverview(t *testing.T) {
	t.Parallel()
	s := newFixture(t, pgtest.New(t))
	s.Stock("sneaker", 2)
	s.Stock(scriptName, 5)
	s.Stock("shirt", 10)
	s.decided("cart-1", "sneaker", 2)
	s.decided("cart-2", "shirt", 3)
	failed := s.decided("cart-3", "sneaker", 1)
	again := s.Submit("cart-3", "sneaker", 1)
	s.Exec(`UPDATE reservation_requests SET retry_of = $2 WHERE request_id = $1`, again.RequestID, failed.RequestID)
	pgtest.Must(t, lanes.Control(t.Context(), s.DB, lanes.Normal, lanes.Patch{Paused: new(true), RateCap: new(int32(5))}, audit.Origin{}))
	s.Pin(scriptName)
	s.signal(uuid.Nil, "", 50)
	s.signal(s.Tenant, "", 40)
	s.signal(s.Tenant, "sneaker", 31)
	s.signal(s.Tenant, scriptName, 9)
	_, err := audit.Subscribe(t.Context(), s.DB, "projections", audit.SubscriptionConfig{})
	pgtest.Must(t, err)
	s.Exec(`UPDATE audit_subscriptions SET failures = 2, last_error = repeat('é', 400)`)
	_, body := s.read(ops.Config{Arrivals: true})
	if !strings.Contains(body, scriptName) {
		t.Error("the id of a variant is changed")
	}
	pgtest.Golden(t, "overview", masked(body), *update)
}

// An empty service has empty lists, not null, and no lane is slow.
// The overview shows what is kept back of a variant: for those in line, and in
// allotments.
func TestOverviewKeptBack(t *testing.T) {
	t.Parallel()
	s := newFixture(t, pgtest.New(t))
	s.Stock("shirt", 10)
	s.Stock("cap", 1)
	s.decided("cart-1", "cap", 1)
	for range 2 {
		s.SubmitAs(requestrows.Submission{Kind: requests.Wait, CartID: "cart-2", VariantID: "cap", Quantity: 1})
	}
	s.Tick(s.lane)
	pgtest.Must(t, pgx.BeginFunc(t.Context(), s.DB, func(tx pgx.Tx) error {
		_, err := inventory.SetAllotmentTx(t.Context(), tx, s.Tenant, "shirt", "fans", 4, nil, audit.Origin{})
		return err
	}))
	state, _ := s.read(ops.Config{})
	got := map[string][2]int64{}
	for _, v := range state.Variants {
		got[v.VariantID] = [2]int64{v.InLine, v.SetAside}
	}
	if want := map[string][2]int64{"cap": {2, 0}, "shirt": {0, 4}}; !maps.Equal(got, want) {
		t.Errorf("in line and set aside are %v, want %v", got, want)
	}
	if len(state.Expiring) != 1 {
		t.Errorf("about to expire are %+v, want the hold of the cap", state.Expiring)
	}
}

func TestEmptyOverview(t *testing.T) {
	t.Parallel()
	s := newFixture(t, pgtest.New(t))
	_, body := s.read(ops.Config{})
	pgtest.Golden(t, "empty", masked(body), *update)
}

// A tenant sees no row of another tenant, whatever that one has.
func TestOverviewIsTheTenants(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	mine, other := newFixture(t, db), newFixture(t, db)
	other.Stock("secret", 1)
	other.decided("secret-cart", "secret", 1)
	other.decided("secret-cart", "secret", 1)
	other.signal(other.Tenant, "secret", 100)
	pgtest.Must(t, lanes.Pin(t.Context(), db, other.Inserter, other.Tenant, "secret"))
	mine.Stock("shirt", 1)
	mine.decided("cart", "shirt", 1)
	state, body := mine.read(ops.Config{Arrivals: true})
	if strings.Contains(body, "secret") || strings.Contains(body, other.Tenant.String()) {
		t.Errorf("another tenant's rows are visible: %s", body)
	}
	if len(state.Variants) != 1 || len(state.Expiring) != 1 || len(state.Failed) != 0 || state.Expiring[0].VariantID != "shirt" {
		t.Errorf("its own state is %+v", state)
	}
	if state, _ := other.read(ops.Config{}); len(state.Variants) != 1 || len(state.Expiring) != 1 || len(state.Failed) != 1 || state.Failed[0].Reason != "out_of_stock" {
		t.Errorf("the other's state is %+v", state)
	}
}

// Each list has a bound, and contains what matters most.
func TestOverviewBounds(t *testing.T) {
	t.Parallel()
	s := newFixture(t, pgtest.New(t))
	s.Exec(`INSERT INTO inventory_stocks (tenant_id, variant_id, stock) SELECT $1, 'v' || lpad(n::text, 3, '0'), 1 FROM generate_series(1, 100) n`, s.Tenant)
	for i := range 25 {
		s.Submit(fmt.Sprint("holder-", i), fmt.Sprintf("v%03d", 50+i), 1)
		s.Submit(fmt.Sprint("late-", i), fmt.Sprintf("v%03d", 50+i), 1)
	}
	s.Submit("cart", "unknown", 1)
	s.Tick(s.lane)
	s.signal(s.Tenant, "v099", 3)
	s.signal(s.Tenant, "v098", 7)
	s.signal(s.Tenant, "unknown", 9)
	s.Exec(`INSERT INTO audit_subscriptions (name, position, settled, next, next_horizon) SELECT 'reader ' || n, 0, 0, 0, '0' FROM generate_series(1, 60) n`)
	s.Exec(`UPDATE reservations SET expires_at = clock_timestamp() + interval '1 minute' WHERE resource_key = 'v060'`)
	s.Exec(`UPDATE reservations SET expires_at = clock_timestamp() - interval '1 hour' WHERE resource_key = 'v061'`)
	s.Exec(`UPDATE inventory_stocks SET stock = 9 WHERE variant_id = 'v098'`)
	// Old failures that an operator can act on come before the many rejections.
	s.Exec(`UPDATE reservation_requests SET reason = 'expired_in_queue', kind = 'set' WHERE cart_id = 'late-0'`)
	s.Exec(`UPDATE reservation_requests SET reason = 'internal_error' WHERE cart_id = 'late-1'`)
	// Hot variants without requests have the first ten places.
	s.Exec(`INSERT INTO hot_variants (tenant_id, variant_id, slot, pinned) SELECT $1, 'v' || lpad(n::text, 3, '0'), 0, true FROM generate_series(1, 15) n`, s.Tenant)
	state, _ := s.read(ops.Config{})
	if len(state.Variants) != ops.VariantsMax {
		t.Fatalf("variants are %+v", state.Variants)
	}
	for i, want := range map[int]string{0: "v001", 9: "v010", 10: "v098", 11: "v099", 12: "v050", 19: "v011"} {
		if got := state.Variants[i]; got.VariantID != want || got.Pinned != (want <= "v015") || (got.Lane == lanes.Hot) != got.Pinned {
			t.Errorf("variant %d is %+v, want %s", i, got, want)
		}
	}
	if state.Variants[10].SoldOut || !state.Variants[12].SoldOut || state.Variants[10].RatePerSecond != 7 {
		t.Errorf("variants are %+v", state.Variants)
	}
	if len(state.Expiring) != ops.ExpiringMax || state.Expiring[0].VariantID != "v060" || !isSorted(state.Expiring) {
		t.Errorf("next to expire are %+v", state.Expiring)
	}
	for _, hold := range state.Expiring {
		if hold.VariantID == "v061" {
			t.Error("a due hold is listed as expiring")
		}
	}
	if len(state.Failed) != ops.FailedMax || len(state.Subscriptions) != ops.SubscriptionsMax {
		t.Errorf("%d failed, %d subscriptions", len(state.Failed), len(state.Subscriptions))
	}
	var failed []string
	for _, f := range state.Failed[:4] {
		failed = append(failed, fmt.Sprint(f.CartID, " ", f.Kind, " ", f.Reason))
	}
	if want := []string{"late-1 add internal_error", "late-0 set expired_in_queue", "cart add unknown_variant", "late-24 add out_of_stock"}; !slices.Equal(failed, want) {
		t.Errorf("failed are %q, want %q", failed, want)
	}
	if lag := state.Sweeps[0].LagSeconds; state.Sweeps[0].Name != "sweep" || lag < 3600 || lag >= 2*3600 {
		t.Errorf("sweeps are %+v", state.Sweeps)
	}
}

func isSorted(holds []ops.OverviewHold) bool {
	for i := 1; i < len(holds); i++ {
		if holds[i].ExpiresAt.Before(holds[i-1].ExpiresAt) {
			return false
		}
	}
	return true
}

// A tenant finds its next holds beside many earlier ones of another tenant.
func TestExpiringBesideOthers(t *testing.T) {
	t.Parallel()
	s := newFixture(t, pgtest.New(t))
	s.Stock("shirt", 10)
	s.decided("cart", "shirt", 1)
	s.Exec(`
		INSERT INTO reservations (tenant_id, reservation_id, resource_kind, resource_key, holder_id, quantity, first_held_at, held_at, expires_at)
		SELECT $1, gen_random_uuid(), $2, 'other', 'cart', 1, clock_timestamp(), clock_timestamp(), clock_timestamp() + interval '1 minute'
		FROM generate_series(1, 6000)`, uuid.New(), inventory.Kind)
	if state, _ := s.read(ops.Config{}); len(state.Expiring) != 1 || state.Expiring[0].VariantID != "shirt" {
		t.Errorf("next to expire are %+v", state.Expiring)
	}
}

// The lanes follow their controls at once, and what waits in them within a
// second.
func TestOverviewLanes(t *testing.T) {
	t.Parallel()
	s := newFixture(t, pgtest.New(t))
	s.Stock("shirt", 10)
	normalLane := func() ops.OverviewLane {
		state, _ := s.read(ops.Config{})
		if len(state.Lanes) != 2 || state.Lanes[0].Lane != lanes.Hot || state.Lanes[1].ArrivalsPerSecond != nil {
			t.Fatalf("lanes are %+v", state.Lanes)
		}
		return state.Lanes[1]
	}
	if l := normalLane(); l.Depth != 0 || l.Paused || l.Slow != nil || l.RateCap != nil {
		t.Errorf("an idle lane is %+v", l)
	}
	pgtest.Must(t, lanes.Control(t.Context(), s.DB, lanes.Normal, lanes.Patch{Paused: new(true), RateCap: new(int32(7))}, audit.Origin{}))
	if l := normalLane(); !l.Paused || *l.Slow != "Paused." || *l.RateCap != 7 {
		t.Errorf("a paused lane is %+v", l)
	}
	s.Submit("cart", "shirt", 1)
	s.Exec(`UPDATE reservation_requests SET created_at = created_at - interval '1 minute'`)
	pgtest.Until(t, "the waiting request is counted", func() bool { return normalLane().Depth == 1 })
	if l := normalLane(); l.OldestSeconds < 60 || !strings.HasPrefix(*l.Slow, "Paused; 1 request waits, the oldest for ") {
		t.Errorf("a paused lane with a request is %+v, %s", l, *l.Slow)
	}
	s.Tick(s.lane)
	pgtest.Must(t, lanes.Control(t.Context(), s.DB, lanes.Normal, lanes.Patch{Paused: new(false), RateCap: new(int32(0))}, audit.Origin{}))
	pgtest.Until(t, "the lane is empty", func() bool {
		s.Tick(s.lane)
		l := normalLane()
		return l.Depth == 0 && l.Slow == nil && l.OldestSeconds == 0
	})
}

// Arrivals are added up over all processes. Those of hot variants count for the
// hot lane, and old signals do not count.
func TestArrivals(t *testing.T) {
	t.Parallel()
	s := newFixture(t, pgtest.New(t))
	s.Stock("sneaker", 10)
	s.Pin("sneaker")
	s.signal(uuid.Nil, "", 20)
	s.signal(uuid.Nil, "", 30)
	s.signal(s.Tenant, "", 50)
	s.signal(s.Tenant, "sneaker", 12)
	s.signal(s.Tenant, "sneaker", 8)
	s.signal(s.Tenant, "shirt", 30)
	arrive := func() map[lanes.Lane]float64 {
		rates, err := ops.Arrivals(t.Context(), s.DB)
		pgtest.Must(t, err)
		return rates
	}
	if got := arrive(); got[lanes.Hot] != 20 || got[lanes.Normal] != 30 {
		t.Errorf("arrivals are %v, want 20 hot and 30 normal", got)
	}
	s.Exec(`UPDATE hot_signals SET measured_at = measured_at - $1::interval`, time.Minute)
	if got := arrive(); got[lanes.Hot] != 0 || got[lanes.Normal] != 0 {
		t.Errorf("old arrivals are %v", got)
	}
}
