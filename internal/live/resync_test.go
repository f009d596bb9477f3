package live_test

import (
	"context"
	"encoding/json"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/frames"
	"github.com/holdfast/holdfast/internal/live"
	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/internal/tenants"
)

// next returns the next frame.
func next(t testing.TB, s *live.Subscription) live.Frame {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	f, err := s.Next(ctx)
	pgtest.Must(t, err)
	return f
}

// rebuildLarge replaces the tenant's counter by a state that fits into no
// notification, and returns its frame.
func (b *fixture) rebuildLarge() frames.Frame {
	b.TB.Helper()
	f := b.count(b.tenant, 1)
	f.Event, f.Payload = live.Rebuild, paddedTo(f.Version, 20_000)
	b.Exec(`UPDATE projection_snapshots SET state = $1`, f.Payload)
	return f
}

// countReads makes the config count the reads of snapshots.
func countReads(c *live.Config) *atomic.Int64 {
	var reads atomic.Int64
	read := c.Snapshots
	c.Snapshots = func(ctx context.Context, db audit.Querier, tenantID uuid.UUID, channels []string) ([]frames.Frame, error) {
		reads.Add(1)
		return read(ctx, db, tenantID, channels)
	}
	return &reads
}

// A rebuild that fits into no notification arrives as one rebuild with the
// whole state. A subscriber that comes later receives a snapshot.
func TestLargeRebuild(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	hub, _ := b.run(b.config())
	all := []*live.Subscription{subscribe(t, hub, b.tenant), subscribe(t, hub, b.tenant)}
	for _, s := range all {
		want(t, s, live.Snapshot, 0, 0)
	}
	for range 2 {
		b.send(b.count(b.tenant, 1))
		for _, s := range all {
			next(t, s)
		}
		rebuilt := b.rebuildLarge()
		b.send(rebuilt, rebuilt)
		for _, s := range all {
			f := next(t, s)
			var got, sent any
			pgtest.Must(t, json.Unmarshal(f.Payload, &got))
			pgtest.Must(t, json.Unmarshal(rebuilt.Payload, &sent))
			if f.Event != live.Rebuild || f.Version != rebuilt.Version || got.(map[string]any)["text"] != sent.(map[string]any)["text"] {
				t.Fatalf("received %s %d of %d bytes, want the rebuild %d", f.Event, f.Version, len(f.Payload), rebuilt.Version)
			}
		}
		if f := next(t, subscribe(t, hub, b.tenant)); f.Event != live.Snapshot || f.Version != rebuilt.Version {
			t.Errorf("a new subscriber receives %s %d", f.Event, f.Version)
		}
	}
	b.send(b.count(b.tenant, 1))
	for _, s := range all {
		want(t, s, "delta", 5, 5)
	}
}

// A rebuild that arrives while an older state is being read follows that state,
// as one rebuild.
func TestLargeRebuildDuringRead(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	c := b.config()
	read := c.Snapshots
	var blocked atomic.Bool
	deliver := make(chan struct{})
	c.Snapshots = func(ctx context.Context, db audit.Querier, tenantID uuid.UUID, channels []string) ([]frames.Frame, error) {
		states, err := read(ctx, db, tenantID, channels)
		if blocked.Load() {
			<-deliver
		}
		return states, err
	}
	hub, _ := b.run(c)
	s := subscribe(t, hub, b.tenant)
	want(t, s, live.Snapshot, 0, 0)
	b.send(b.count(b.tenant, 1))
	want(t, s, "delta", 1, 1)
	blocked.Store(true)
	newcomer := subscribe(t, hub, b.tenant)
	var all sync.WaitGroup
	all.Go(func() { (&model{t: t}).until(newcomer, 2) })
	pgtest.Until(t, "an older state is being read", func() bool { return hub.Load().Waiting == 1 })
	b.send(b.rebuildLarge())
	rebuilds := 0
	all.Go(func() {
		for client := (&model{t: t, known: true, version: 1}); client.version < 2; {
			f := next(t, s)
			client.receive(&f)
			if f.Event == live.Rebuild {
				rebuilds++
			}
		}
	})
	pgtest.Until(t, "both wait", func() bool { return hub.Load().Waiting == 2 })
	close(deliver)
	all.Wait()
	if rebuilds != 1 {
		t.Errorf("received %d rebuilds, want one", rebuilds)
	}
}

// A state that was deleted and began again is noticed by its first frame,
// without a comparison of versions. Subscribers share one read, and so they do
// if the first frame arrives again.
func TestStateBeginsAgain(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	c := b.config()
	reads := countReads(&c)
	hub, _ := b.run(c)
	var all []*live.Subscription
	for range 5 {
		all = append(all, subscribe(t, hub, b.tenant))
	}
	for _, s := range all {
		want(t, s, live.Snapshot, 0, 0)
	}
	old := b.count(b.tenant, 5)
	b.send(old)
	for _, s := range all {
		want(t, s, "delta", 1, 5)
	}
	b.Exec(`DELETE FROM projection_snapshots`)
	b.versions[b.tenant] = 0
	first := b.count(b.tenant, 2)
	for _, sent := range []frames.Frame{first, first} {
		before := reads.Load()
		b.send(sent)
		var readers sync.WaitGroup
		for _, s := range all {
			readers.Go(func() {
				if f := next(t, s); f.Event != live.Snapshot || f.Version != 2 {
					t.Errorf("received %s %d, want the snapshot 2", f.Event, f.Version)
				}
			})
		}
		readers.Wait()
		if n := reads.Load() - before; n > 2 { // the second if a reader asked after the first was delivered
			t.Errorf("%d subscribers made %d reads", len(all), n)
		}
	}
	b.send(b.count(b.tenant, 1))
	for _, s := range all {
		want(t, s, "delta", 3, 3)
	}
}

// Frames without payload that arrive faster make at most 20 snapshots per
// second.
func TestSnapshotsArePaced(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	c := b.config()
	read := c.Snapshots
	var mu sync.Mutex
	var ended time.Time
	reads, early := 0, 0
	c.Snapshots = func(ctx context.Context, db audit.Querier, tenantID uuid.UUID, channels []string) ([]frames.Frame, error) {
		mu.Lock()
		defer mu.Unlock()
		reads++
		if time.Now().Before(ended.Add(50 * time.Millisecond)) {
			early++
		}
		states, err := read(ctx, db, tenantID, channels)
		ended = time.Now()
		return states, err
	}
	hub, _ := b.run(c)
	s := subscribe(t, hub, b.tenant)
	want(t, s, live.Snapshot, 0, 0)
	for range 8 {
		f := b.count(b.tenant, 1)
		f.Payload = nil
		b.send(f)
		(&model{t: t, known: true}).until(s, f.Version)
	}
	mu.Lock()
	defer mu.Unlock()
	if reads < 9 || early > 0 {
		t.Errorf("%d reads, %d of them less than 50 ms after the last one; want at least 9, none early", reads, early)
	}
}

// A subscription that ends while it asks for a snapshot costs no read, and
// leaves the tenant's next subscriber in place.
func TestClosedSubscriptionAsks(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	c := b.config()
	reads := countReads(&c)
	hub, _ := b.run(c)
	closed, err := hub.Subscribe(b.tenant, counter)
	pgtest.Must(t, err)
	closed.Close()
	s := subscribe(t, hub, b.tenant)
	closed.Want()
	want(t, s, live.Snapshot, 0, 0)
	for version := range int64(3) {
		b.send(b.count(b.tenant, 1))
		want(t, s, "delta", version+1, version+1)
	}
	if load := hub.Load(); load.Tenants != 1 || load.Subscribers != 1 || reads.Load() != 1 {
		t.Errorf("%+v after %d reads, want one subscriber and one read", load, reads.Load())
	}
	closed.Forget()
	if load := hub.Load(); load.Tenants != 1 {
		t.Errorf("%+v: another tenant object of the same id was removed", load)
	}
}

// stalling makes connections whose large writes wait until resume is closed, as
// those of a client do that does not read.
type stalling struct {
	net.Listener
	stalled, resume chan struct{} // stalled receives a value for each write that waits
}

func (l *stalling) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &stallingConn{Conn: conn, stalling: l, closed: make(chan struct{})}, nil
}

type stallingConn struct {
	net.Conn
	*stalling
	closed chan struct{}
	once   sync.Once
}

func (c *stallingConn) Write(p []byte) (int, error) {
	if len(p) >= payloadBytes {
		select {
		case c.stalled <- struct{}{}:
		default:
		}
		select {
		case <-c.resume:
		case <-c.closed:
			return 0, net.ErrClosed
		}
	}
	return c.Conn.Write(p)
}

func (c *stallingConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

// A client that accepts nothing for a while stays connected, and receives a
// snapshot when it reads again. It stalls for longer than a ping waits to be
// written; with HOLDFAST_TEST_LONG, for a minute.
func TestStalledClient(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	c := b.config()
	c.Limits.Frames, c.Limits.Ping = 8, 100*time.Millisecond
	stall := 6 * time.Second
	if os.Getenv("HOLDFAST_TEST_LONG") != "" {
		stall = time.Minute
	}
	hub, _ := b.run(c)
	stalled, resume := make(chan struct{}, 1), make(chan struct{})
	server := b.serveOn(hub, b.holder(tenants.ScopeCart), func(l net.Listener) net.Listener {
		return &stalling{Listener: l, stalled: stalled, resume: resume}
	})
	one := dial(t, server)
	one.subscribe(counter)
	events := make(chan string, 100)
	go func() {
		defer close(events)
		for m := (&model{t: t}); m.version < 21; {
			text, err := one.next()
			if err != nil {
				t.Error(err)
				return
			}
			if text != heartbeat {
				f := received(t, text)
				m.receive(&f)
				events <- f.Event
			}
		}
	}()
	got := []string{<-events}
	for i := range 20 {
		f := b.count(b.tenant, 1)
		f.Payload = padded(f.Version)
		b.send(f)
		if i == 0 {
			<-stalled // a slower writer would find the queue dropped, and nothing would stall
		}
	}
	pgtest.Until(t, "more is queued than allowed", func() bool { return hub.Load().Stale == 1 })
	over := time.NewTimer(stall)
	defer over.Stop()
	<-over.C
	if load := hub.Load(); load.Sessions != 1 || load.Stale != 1 || load.Frames > 8 {
		t.Errorf("%+v; want the client connected", load)
	}
	close(resume)
	for range 2 { // the frame that was being written, and a snapshot
		got = append(got, <-events)
	}
	b.send(b.count(b.tenant, 1))
	for event := range events {
		got = append(got, event)
	}
	if diff := cmp.Diff([]string{live.Snapshot, "delta", live.Snapshot, "delta"}, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}
