package live_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/holdfast/holdfast/internal/frames"
	"github.com/holdfast/holdfast/internal/live"
	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/internal/tenants"
	"github.com/holdfast/holdfast/projections"
)

const (
	projection = "test.count"
	counter    = "projection.test.count.a"
)

// fixture is a database with two tenants. Its states are counters: the version
// of a state is the number in it, and so is that of a delta.
type fixture struct {
	pgtest.Fixture
	tenant, other uuid.UUID
	mu            sync.Mutex
	versions      map[uuid.UUID]int64 // of the counters with the key a
}

func newFixture(t testing.TB) *fixture {
	t.Helper()
	b := &fixture{Fixture: pgtest.NewFixture(t), versions: map[uuid.UUID]int64{}}
	b.tenant, b.other = b.newTenant("rolls and buns"), b.newTenant("whole milk")
	return b
}

func (b *fixture) newTenant(name string) uuid.UUID {
	b.TB.Helper()
	tenant, err := tenants.Ensure(b.TB.Context(), b.DB, name)
	pgtest.Must(b.TB, err)
	return tenant.TenantID
}

// newKey returns the principal of a new key of the tenant.
func (b *fixture) newKey(scopes ...tenants.Scope) tenants.Principal {
	b.TB.Helper()
	_, key, err := tenants.CreateKey(b.TB.Context(), b.DB, b.tenant, "test", scopes)
	pgtest.Must(b.TB, err)
	return tenants.Principal{TenantID: b.tenant, KeyID: key.KeyID, Prefix: key.Prefix, Scopes: key.Scopes}
}

// config is that of a hub which receives frames as notifications only, because
// it compares no versions.
func (b *fixture) config() live.Config {
	return live.Config{
		Pool: b.DB, Log: slog.New(slog.DiscardHandler), Public: []string{"projection.test."},
		Snapshots: projections.Snapshots, Versions: projections.Versions,
		Limits: live.Limits{Check: time.Hour},
	}
}

// run runs a hub until stop is called or the test ends. It returns when the hub
// listens.
func (b *fixture) run(c live.Config) (hub *live.Hub, stop func()) {
	b.TB.Helper()
	hub, err := live.New(c)
	pgtest.Must(b.TB, err)
	before := b.listening()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- hub.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			b.TB.Error(err)
		}
	})
	b.TB.Cleanup(stop)
	pgtest.Until(b.TB, "the hub listens", func() bool { return b.listening() == before+1 })
	return hub, stop
}

const listeningSQL = `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN%'`

func (b *fixture) listening() int64 { return pgtest.Int(b.TB, b.DB, listeningSQL) }

// count adds n events to the tenant's counter, and returns the frame of them.
func (b *fixture) count(tenant uuid.UUID, n int64) frames.Frame {
	b.TB.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	first := b.versions[tenant] + 1
	b.versions[tenant] += n
	version := b.versions[tenant]
	b.Exec(`INSERT INTO projection_snapshots (tenant_id, projection_name, key, state, version) VALUES ($1, $2, 'a', $3, $4)
		ON CONFLICT (tenant_id, projection_name, key) DO UPDATE SET state = excluded.state, version = excluded.version`,
		tenant, projection, number(version), version)
	return frames.Frame{TenantID: tenant, Channel: counter, Event: "delta", First: first, Version: version, Payload: number(version)}
}

func number(n int64) json.RawMessage { return json.RawMessage(fmt.Sprintf(`{"n":%d}`, n)) }

func (b *fixture) send(sent ...frames.Frame) {
	b.TB.Helper()
	pgtest.Must(b.TB, frames.Send(b.TB.Context(), b.DB, sent))
}

// want returns the next frame and expects its event and versions.
func want(t testing.TB, s *live.Subscription, event string, first, version int64) live.Frame {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	f, err := s.Next(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if f.Channel != counter || f.Event != event || f.First != first || f.Version != version {
		t.Fatalf("received %s %s %d to %d, want %s %d to %d", f.Channel, f.Event, f.First, f.Version, event, first, version)
	}
	payload := string(number(version))
	if version == 0 {
		payload = "null"
	}
	if string(f.Payload) != payload {
		t.Fatalf("received %s, want %s", f.Payload, payload)
	}
	return f
}

// model is what a client knows of a counter.
type model struct {
	t       testing.TB
	known   bool
	version int64
}

// receive applies a frame as a client does, and fails the test if the frame is
// none that may follow.
func (m *model) receive(f *live.Frame) {
	m.t.Helper()
	var state *struct{ N int64 }
	if err := json.Unmarshal(f.Payload, &state); err != nil {
		m.t.Fatal(err)
	}
	n := int64(0)
	if state != nil {
		n = state.N
	}
	switch {
	case n != f.Version:
		m.t.Errorf("the payload of version %d is %s", f.Version, f.Payload)
	case f.Event == live.Snapshot:
		m.known = true
	case !m.known:
		m.t.Errorf("the first frame is %s", f.Event)
	case f.Event == live.Rebuild && f.Version > m.version:
	case f.First > m.version+1 || f.Version <= m.version:
		m.t.Errorf("versions %d to %d follow %d", f.First, f.Version, m.version)
	}
	m.version = f.Version
}

// until receives frames until the version.
func (m *model) until(s *live.Subscription, version int64) (received int) {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(m.t.Context(), time.Minute)
	defer cancel()
	for ; !m.known || m.version != version; received++ {
		f, err := s.Next(ctx)
		if err != nil {
			m.t.Errorf("at version %d of %d: %v", m.version, version, err)
			return received
		}
		m.receive(&f)
	}
	return received
}

func subscribe(t testing.TB, hub *live.Hub, tenant uuid.UUID) *live.Subscription {
	t.Helper()
	s, err := hub.Subscribe(tenant, counter)
	pgtest.Must(t, err)
	t.Cleanup(s.Close)
	return s
}

// padded is a number in payloadBytes.
func padded(n int64) json.RawMessage { return paddedTo(n, payloadBytes) }

func paddedTo(n int64, size int) json.RawMessage {
	return json.RawMessage(fmt.Sprintf(`{"n":%d,"text":%q}`, n, strings.Repeat("x", size)))
}
