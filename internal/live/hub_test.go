package live_test

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/frames"
	"github.com/holdfast/holdfast/internal/live"
	"github.com/holdfast/holdfast/internal/pgtest"
)

// The first frame is a snapshot, also of a channel without a state. Frames with
// the versions that follow it are delivered as they are, in each process.
func TestSnapshotFirst(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	one, _ := b.run(b.config())
	two, _ := b.run(b.config())
	none := subscribe(t, one, b.tenant)
	want(t, none, live.Snapshot, 0, 0)
	b.count(b.tenant, 3) // not sent, and received as a part of the snapshots
	all := []*live.Subscription{subscribe(t, one, b.tenant), subscribe(t, one, b.tenant), subscribe(t, two, b.tenant)}
	for _, s := range all {
		want(t, s, live.Snapshot, 3, 3)
	}
	b.send(b.count(b.tenant, 1), b.count(b.tenant, 5))
	for _, s := range all {
		want(t, s, "delta", 4, 4)
		want(t, s, "delta", 5, 9)
	}
	(&model{t: t}).until(none, 9)
}

// A frame that leaves a gap, or has no payload, is answered with a snapshot. A
// repeated frame is dropped. A rebuild replaces the state, so it leaves no gap.
func TestGap(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	hub, _ := b.run(b.config())
	s := subscribe(t, hub, b.tenant)
	want(t, s, live.Snapshot, 0, 0)
	first := b.count(b.tenant, 1)
	b.send(first)
	want(t, s, "delta", 1, 1)
	b.count(b.tenant, 1)
	b.send(b.count(b.tenant, 1))
	want(t, s, live.Snapshot, 3, 3)
	large := b.count(b.tenant, 1)
	large.Payload = nil
	b.send(first, large)
	want(t, s, live.Snapshot, 4, 4)
	b.count(b.tenant, 1)
	rebuilt := b.count(b.tenant, 1)
	rebuilt.Event = live.Rebuild
	b.send(rebuilt, rebuilt)
	want(t, s, live.Rebuild, 6, 6)
	overlapping := b.count(b.tenant, 1)
	overlapping.First = 5
	b.send(overlapping)
	want(t, s, "delta", 5, 7)
	b.Exec(`SELECT pg_notify($1, '{"no":"frames"}')`, frames.Channel)
	b.send(b.count(b.tenant, 1))
	want(t, s, "delta", 8, 8)
}

// Frames that no notification carried are found by their versions, also when
// the connection that listens was lost.
func TestLostNotifications(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	c := b.config()
	c.Limits.Check = 0 // the default
	hub, _ := b.run(c)
	s := subscribe(t, hub, b.tenant)
	want(t, s, live.Snapshot, 0, 0)
	b.count(b.tenant, 7)
	want(t, s, live.Snapshot, 7, 7)

	client := &model{t: t, known: true, version: 7}
	for range 3 {
		b.Exec(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN%'`)
		for range 5 {
			b.send(b.count(b.tenant, 1))
		}
		pgtest.Until(t, "it listens again", func() bool { return b.listening() == 1 })
		b.send(b.count(b.tenant, 1))
		client.until(s, b.versions[b.tenant])
	}
	b.send(b.count(b.tenant, 1))
	client.until(s, b.versions[b.tenant])
}

// A state that was deleted is sent as null, and counts from 1 again.
func TestDeletedState(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	c := b.config()
	c.Limits.Check = 100 * time.Millisecond
	hub, _ := b.run(c)
	s := subscribe(t, hub, b.tenant)
	b.send(b.count(b.tenant, 500))
	client := &model{t: t}
	client.until(s, 500)
	b.Exec(`DELETE FROM projection_snapshots`)
	client.until(s, 0)
	b.versions[b.tenant] = 0
	b.send(b.count(b.tenant, 1))
	client.until(s, 1)
}

// What is queued for a subscriber that does not read is bounded. It receives a
// snapshot when it reads again, and others receive every frame.
func TestSlowReader(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	c := b.config()
	c.Limits.Frames = 8
	hub, _ := b.run(c)
	slow, other := subscribe(t, hub, b.tenant), subscribe(t, hub, b.tenant)
	want(t, slow, live.Snapshot, 0, 0)
	want(t, other, live.Snapshot, 0, 0)
	for i := range int64(100) {
		b.send(b.count(b.tenant, 1))
		want(t, other, "delta", i+1, i+1)
	}
	if load := hub.Load(); load.Frames > 8 || load.Waiting != 0 {
		t.Errorf("%+v; want at most 8 frames, and no read for a subscriber that does not read", load)
	}
	want(t, slow, live.Snapshot, 100, 100)
	b.send(b.count(b.tenant, 1))
	want(t, slow, "delta", 101, 101)
	want(t, other, "delta", 101, 101)
}

// A snapshot may be larger than what may be queued.
func TestLargeState(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	c := b.config()
	c.Limits.Bytes = 100
	hub, _ := b.run(c)
	b.count(b.tenant, 1)
	b.Exec(`UPDATE projection_snapshots SET state = $1`, json.RawMessage(`{"n":1,"text":"`+strings.Repeat("x", 20_000)+`"}`))
	client := &model{t: t}
	client.until(subscribe(t, hub, b.tenant), 1)
}

// Many subscribers of a channel that need a snapshot at once share one read.
func TestReadsAreShared(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	c := b.config()
	var reads atomic.Int64
	begin := make(chan struct{})
	read := c.Snapshots
	c.Snapshots = func(ctx context.Context, db audit.Querier, tenantID uuid.UUID, channels []string) ([]frames.Frame, error) {
		reads.Add(1)
		<-begin
		return read(ctx, db, tenantID, channels)
	}
	hub, _ := b.run(c)
	const many = 1000
	var all sync.WaitGroup
	for range many {
		s := subscribe(t, hub, b.tenant)
		all.Go(func() { (&model{t: t}).until(s, 2) })
	}
	pgtest.Until(t, "all of them wait", func() bool { return hub.Load().Waiting == many })
	b.send(b.count(b.tenant, 1), b.count(b.tenant, 1))
	close(begin)
	all.Wait()
	if n := reads.Load(); n > many/10 { // more than one if frames were delivered between them
		t.Errorf("%d subscribers made %d reads", many, n)
	}
}

// A read that fails is repeated.
func TestReadFails(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	c := b.config()
	var reads atomic.Int64
	read := c.Snapshots
	c.Snapshots = func(ctx context.Context, db audit.Querier, tenantID uuid.UUID, channels []string) ([]frames.Frame, error) {
		if reads.Add(1) == 1 {
			return nil, errors.New("an outage")
		}
		return read(ctx, db, tenantID, channels)
	}
	hub, _ := b.run(c)
	want(t, subscribe(t, hub, b.tenant), live.Snapshot, 0, 0)
}

// A tenant receives nothing of another one's channel with the same name.
func TestTenantsAreApart(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	hub, _ := b.run(b.config())
	mine, theirs := subscribe(t, hub, b.tenant), subscribe(t, hub, b.other)
	want(t, mine, live.Snapshot, 0, 0)
	want(t, theirs, live.Snapshot, 0, 0)
	b.send(b.count(b.tenant, 1), b.count(b.other, 4), b.count(b.tenant, 1))
	want(t, mine, "delta", 1, 1)
	want(t, mine, "delta", 2, 2)
	want(t, theirs, "delta", 1, 4)
	want(t, subscribe(t, hub, b.other), live.Snapshot, 4, 4)
}

// Whatever is lost, repeated, combined or late, and however slowly subscribers
// read, each of them receives frames that follow each other, and in the end the
// last version.
func TestRandomDelivery(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	c := b.config()
	c.Limits.Frames, c.Limits.Check = 4, 40*time.Millisecond
	one, _ := b.run(c)
	two, _ := b.run(c)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	const events = 300
	var all sync.WaitGroup
	var last atomic.Int64
	for i := range 6 {
		s := subscribe(t, []*live.Hub{one, two}[i%2], b.tenant)
		client := &model{t: t}
		all.Go(func() {
			for client.version == 0 || client.version != last.Load() {
				client.next(s)
			}
		})
	}
	var late []frames.Frame
	for range events {
		f := b.count(b.tenant, 1+random.Int64N(3))
		switch random.IntN(8) {
		case 0: // lost
		case 1:
			late = append(late, f)
		case 2:
			f.Payload = nil
			b.send(f)
		case 3:
			f.Event, f.First = live.Rebuild, f.Version
			b.send(f)
		case 4:
			b.send(append(late, f, f)...)
			late = nil
		default:
			b.send(f)
		}
	}
	last.Store(b.versions[b.tenant] + 1)
	b.send(b.count(b.tenant, 1))
	all.Wait()
}

// next receives one frame and returns its version.
func (m *model) next(s *live.Subscription) int64 {
	ctx, cancel := context.WithTimeout(m.t.Context(), time.Minute)
	defer cancel()
	f, err := s.Next(ctx)
	if err != nil {
		m.t.Errorf("at version %d: %v", m.version, err)
		return m.version
	}
	m.receive(&f)
	return m.version
}

// A hub refuses what exceeds its limits, and keeps nothing of clients that have
// left.
func TestLimits(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	c := b.config()
	c.Limits.Connections, c.Limits.TenantConnections, c.Limits.Channels, c.Limits.TenantChannels = 3, 2, 3, 2
	hub, stop := b.run(c)
	for _, channel := range []string{"", "projection.", "projection.a", "projection.a.", "projection..a", "a", "projection.a.\x00", "projection.a.\xff", "projection.a." + strings.Repeat("x", 2000)} {
		if _, err := hub.Subscribe(b.tenant, channel); !errors.Is(err, live.ErrUnknownChannel) {
			t.Errorf("%.40q: %v", channel, err)
		}
	}
	var subscriptions []*live.Subscription
	for _, tc := range []struct {
		tenant uuid.UUID
		key    string
		want   error
	}{
		{b.tenant, "a", nil}, {b.tenant, "a", nil}, {b.tenant, "b", nil}, {b.tenant, "c", live.ErrTooManySubscriptions},
		{b.other, "a", nil}, {b.other, "b", live.ErrTooManySubscriptions},
	} {
		s, err := hub.Subscribe(tc.tenant, "projection.test.count."+tc.key)
		if !errors.Is(err, tc.want) {
			t.Errorf("%s: %v, want %v", tc.key, err, tc.want)
		}
		if err == nil {
			subscriptions = append(subscriptions, s)
		}
	}
	var releases []func()
	for _, tc := range []struct {
		tenant uuid.UUID
		want   error
	}{{b.tenant, nil}, {b.tenant, nil}, {b.tenant, live.ErrTenantConnections}, {b.other, nil}, {b.other, live.ErrConnections}} {
		release, err := hub.Connect(tc.tenant)
		if !errors.Is(err, tc.want) {
			t.Errorf("connect: %v, want %v", err, tc.want)
		}
		if err == nil {
			releases = append(releases, release, release)
		}
	}
	for _, s := range subscriptions {
		s.Close()
		s.Close()
		if _, err := s.Next(t.Context()); !errors.Is(err, live.ErrStopped) {
			t.Errorf("after Close: %v", err)
		}
	}
	for _, release := range releases {
		release()
	}
	pgtest.Until(t, "nothing is kept", func() bool { return hub.Load() == live.Load{} })
	s := subscribe(t, hub, b.tenant)
	want(t, s, live.Snapshot, 0, 0)
	stop()
	if _, err := s.Next(t.Context()); !errors.Is(err, live.ErrStopped) {
		t.Errorf("after the end: %v", err)
	}
	if _, err := hub.Subscribe(b.tenant, counter); !errors.Is(err, live.ErrStopped) {
		t.Errorf("after the end: %v", err)
	}
	if _, err := hub.Connect(b.tenant); !errors.Is(err, live.ErrStopped) {
		t.Errorf("after the end: %v", err)
	}
}

// A call of Next ends with its context.
func TestNextEnds(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	hub, _ := b.run(b.config())
	s := subscribe(t, hub, b.tenant)
	want(t, s, live.Snapshot, 0, 0)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Next(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want the context's error", err)
	}
	for i := range live.NotesMax + 1 {
		if room := s.Note("x"); room != (i < live.NotesMax) {
			t.Errorf("note %d: room %t", i, room)
		}
	}
}

func TestConfigIsChecked(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	for name, change := range map[string]func(*live.Config){
		"no pool":        func(c *live.Config) { c.Pool = nil },
		"no log":         func(c *live.Config) { c.Log = nil },
		"no versions":    func(c *live.Config) { c.Versions = nil },
		"a negative":     func(c *live.Config) { c.Limits.Frames = -1 },
		"no pause":       func(c *live.Config) { c.Limits.Ping = 1 },
		"no sample":      func(c *live.Config) { c.Sampled = []live.Sampled{{Channel: "a"}} },
		"a projection's": func(c *live.Config) { c.Sampled = []live.Sampled{{Channel: counter, Sample: b.nothing}} },
	} {
		c := b.config()
		change(&c)
		if _, err := live.New(c); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
}

func (b *fixture) nothing(context.Context, uuid.UUID) (json.RawMessage, error) { return nil, nil }
