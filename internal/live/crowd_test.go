package live_test

import (
	"context"
	"os"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/holdfast/holdfast/internal/live"
	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/internal/tenants"
)

// crowd is many clients of one counter.
type crowd struct {
	*fixture
	hub     *live.Hub
	clients int
	frames  int
	pause   time.Duration

	mu        sync.Mutex
	sent      map[int64]time.Time // by version
	durations []time.Duration
}

// A client that does not read costs the others nothing: all of them receive
// every frame, and what is queued for it is bounded. With HOLDFAST_TEST_LONG
// the test has 1,000 clients, and logs how long deliveries take without and
// with the client that does not read.
func TestCrowd(t *testing.T) { //nolint:paralleltest // it measures the heap
	c := &crowd{fixture: newFixture(t), clients: 100, frames: 100}
	config := c.config()
	config.Limits.Write, config.Limits.Ping = time.Hour, time.Hour // a client that does not read stays connected
	rounds := 1
	if os.Getenv("HOLDFAST_TEST_LONG") != "" {
		c.clients, c.frames, c.pause = 1000, 60, 50*time.Millisecond
		rounds = 8
	}
	c.hub, _ = c.run(config)
	server := c.serve(c.hub, c.holder(tenants.ScopeCart))
	server.Listener.(*smallBuffers).on.Store(true)
	heap := heapInUse()
	var connected []*client
	for range c.clients - 1 {
		one := dial(t, server)
		one.subscribe(counter)
		connected = append(connected, one)
	}
	client := func(t *testing.T, one *client) (read func(version int64)) {
		m := &model{t: t}
		return func(version int64) {
			for !m.known || m.version < version {
				c.receive(m, one)
			}
		}
	}
	var reads []func(int64)
	for _, one := range connected {
		read := client(t, one)
		read(0)
		reads = append(reads, read)
	}
	t.Logf("%d KiB of heap per client, both sides", (heapInUse()-heap)/int64(c.clients)>>10)
	var without, with []time.Duration
	for range rounds { // in turn, so that a change of the machine's load affects both
		without = append(without, c.measure(reads)...)
		unread := silent(t, server)
		pgtest.Until(t, "the silent client has subscribed", func() bool { return c.hub.Load().Subscribers == c.clients })
		with = append(with, c.measure(reads)...)
		load := c.hub.Load()
		t.Logf("queued for the client that does not read: %d frames, %d bytes; heap %d MiB", load.Frames, load.Bytes, heapInUse()>>20)
		if load.Subscribers != c.clients || load.Frames == 0 && load.Stale == 0 {
			t.Errorf("%+v; the client that does not read was disconnected, or has received every frame", load)
		}
		if load.Frames > 256 || load.Bytes > 256<<10+2*payloadBytes {
			t.Errorf("%+v; more is queued than allowed", load)
		}
		pgtest.Must(t, unread.Close())
		pgtest.Until(t, "the silent client has left", func() bool { return c.hub.Load().Subscribers == c.clients-1 })
	}
	t.Logf("p99 of a delivery: %s, with a client that does not read %s", p99(without), p99(with))
}

func p99(durations []time.Duration) time.Duration {
	slices.Sort(durations)
	return durations[len(durations)*99/100]
}

// payloadBytes makes the frames of a crowd fill the buffers of the kernel.
const payloadBytes = 1000

func heapInUse() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse)
}

// receive receives a frame and notes how long it took.
func (c *crowd) receive(m *model, from *client) {
	ctx, cancel := context.WithTimeout(c.TB.Context(), time.Minute)
	defer cancel()
	_, text, err := from.conn.Read(ctx)
	now := time.Now()
	if err != nil {
		if websocket.CloseStatus(err) >= 0 || ctx.Err() != nil {
			m.t.Errorf("at version %d: %v", m.version, err)
		}
		runtime.Goexit()
	}
	if string(text) == heartbeat {
		return
	}
	f := received(m.t, string(text))
	if m.known && f.Event != "delta" {
		m.t.Errorf("a client that reads receives %s %d after %d", f.Event, f.Version, m.version)
	}
	m.receive(&f)
	c.mu.Lock()
	defer c.mu.Unlock()
	if sent, found := c.sent[f.Version]; found && f.Event == "delta" {
		c.durations = append(c.durations, now.Sub(sent))
	}
}

// measure sends frames while all clients read, and returns the times from the
// call that sends a frame to its arrivals.
func (c *crowd) measure(reads []func(int64)) []time.Duration {
	c.TB.Helper()
	c.sent, c.durations = map[int64]time.Time{}, nil
	last := c.versions[c.tenant] + int64(c.frames)
	var all sync.WaitGroup
	for _, read := range reads {
		all.Go(func() { read(last) })
	}
	ticker := time.NewTicker(max(c.pause, time.Millisecond))
	defer ticker.Stop()
	for range c.frames {
		f := c.count(c.tenant, 1)
		f.Payload = padded(f.Version)
		c.mu.Lock()
		c.sent[f.Version] = time.Now()
		c.mu.Unlock()
		c.send(f)
		<-ticker.C
	}
	all.Wait()
	if want := c.frames * len(reads); len(c.durations) != want {
		c.TB.Fatalf("%d deliveries, want %d", len(c.durations), want)
	}
	return c.durations
}
