package live_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/holdfast/holdfast/internal/live"
	"github.com/holdfast/holdfast/internal/pgtest"
)

// sampler counts its samples, per tenant.
type sampler struct {
	mu      sync.Mutex
	samples map[uuid.UUID]int
	running atomic.Int64
	most    atomic.Int64
}

func (s *sampler) sample(_ context.Context, tenantID uuid.UUID) (json.RawMessage, error) {
	s.most.Store(max(s.most.Load(), s.running.Add(1)))
	defer s.running.Add(-1)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.samples[tenantID]++
	if s.samples[tenantID]%5 == 0 {
		return nil, errors.New("an outage")
	}
	return json.RawMessage(fmt.Sprintf(`{"tenant":%q,"n":%d}`, tenantID, s.samples[tenantID])), nil
}

func (s *sampler) taken(tenantID uuid.UUID) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.samples[tenantID]
}

// A channel is sampled once for all of its subscribers, while there are any.
// Their snapshots have versions that increase. A slow reader receives the last
// one only.
func TestSampled(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	source := &sampler{samples: map[uuid.UUID]int{}}
	hub, _ := b.run(live.Config{
		Pool: b.DB, Log: b.config().Log,
		Sampled: []live.Sampled{{Channel: "lanes", Every: 2 * time.Millisecond, Sample: source.sample}},
	})
	if _, err := hub.Subscribe(b.tenant, counter); !errors.Is(err, live.ErrUnknownChannel) {
		t.Errorf("without projections: %v", err)
	}
	receive := func(s *live.Subscription) (f live.Frame, n int) {
		t.Helper()
		f, err := s.Next(t.Context())
		pgtest.Must(t, err)
		var state struct {
			Tenant uuid.UUID
			N      int
		}
		pgtest.Must(t, json.Unmarshal(f.Payload, &state))
		if f.Event != live.Snapshot || f.Channel != "lanes" || state.Tenant != b.tenant {
			t.Errorf("received %+v of %s", f, state.Tenant)
		}
		return f, state.N
	}
	var all []*live.Subscription
	for range 10 {
		s, err := hub.Subscribe(b.tenant, "lanes")
		pgtest.Must(t, err)
		all = append(all, s)
	}
	var before live.Frame
	for range 20 {
		f, _ := receive(all[0])
		if f.Version <= before.Version {
			t.Errorf("version %d follows %d", f.Version, before.Version)
		}
		before = f
	}
	slow, err := hub.Subscribe(b.other, "lanes") // wakes the sampler of another tenant
	pgtest.Must(t, err)
	pgtest.Until(t, "the other tenant is sampled", func() bool { return source.taken(b.other) > 20 })
	if load := hub.Load(); load.Frames > 1 {
		t.Errorf("%d samples are queued", load.Frames)
	}
	if _, n := receive(all[1]); n < 20 {
		t.Errorf("a subscriber that reads late receives sample %d", n)
	}
	slow.Close()
	for _, s := range all {
		s.Close()
	}
	pgtest.Until(t, "nothing is sampled", func() bool { return hub.Load() == live.Load{} && source.running.Load() == 0 })
	stopped := source.taken(b.tenant)
	s, err := hub.Subscribe(b.tenant, "lanes")
	pgtest.Must(t, err)
	defer s.Close()
	if _, n := receive(s); n < stopped {
		t.Errorf("a new subscriber receives sample %d after %d", n, stopped)
	}
	if source.most.Load() > live.SamplesMax {
		t.Errorf("%d samples ran at the same time", source.most.Load())
	}
}

// A channel of each key is sampled for that key, and a sample that equals the one
// before is not sent.
func TestSampledKeys(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	var taken atomic.Int64
	var state atomic.Value
	state.Store(`1`)
	config := live.Config{Pool: b.DB, Log: b.config().Log, Sampled: []live.Sampled{{
		Channel: "projection.kits.left", Every: time.Millisecond,
		SampleKey: func(_ context.Context, tenantID uuid.UUID, key string) (json.RawMessage, error) {
			taken.Add(1)
			return json.RawMessage(fmt.Sprintf(`{"tenant":%q,"key":%q,"left":%s}`, tenantID, key, state.Load())), nil
		},
	}}}
	hub, _ := b.run(config)
	for _, name := range []string{"projection.kits.left", "projection.kits.left.", "projection.kits.leftover.a", "projection.kits.left.a\n"} {
		if _, err := hub.Subscribe(b.tenant, name); !errors.Is(err, live.ErrUnknownChannel) {
			t.Errorf("%q: %v", name, err)
		}
	}
	s, err := hub.Subscribe(b.tenant, "projection.kits.left.a.b/c")
	pgtest.Must(t, err)
	defer s.Close()
	want := func(left string, version int64) {
		t.Helper()
		f, err := s.Next(t.Context())
		pgtest.Must(t, err)
		payload := fmt.Sprintf(`{"tenant":%q,"key":"a.b/c","left":%s}`, b.tenant, left)
		if f.Event != live.Snapshot || string(f.Payload) != payload || f.Version != version {
			t.Errorf("received %s of version %d, want %s of %d", f.Payload, f.Version, payload, version)
		}
	}
	want("1", 1)
	before := taken.Load()
	pgtest.Until(t, "the key is sampled again", func() bool { return taken.Load() > before+5 })
	if load := hub.Load(); load.Frames != 0 {
		t.Errorf("%d frames are queued, although nothing changed", load.Frames)
	}
	state.Store(`0`)
	want("0", 2)
	for _, wrong := range []live.Sampled{
		{Channel: "both", Sample: func(context.Context, uuid.UUID) (json.RawMessage, error) { return nil, nil }, SampleKey: config.Sampled[0].SampleKey},
		{Channel: "none"},
	} {
		if _, err := live.New(live.Config{Pool: b.DB, Log: b.config().Log, Sampled: []live.Sampled{wrong}}); err == nil {
			t.Errorf("a hub with the sampled channel %q is made", wrong.Channel)
		}
	}
}
