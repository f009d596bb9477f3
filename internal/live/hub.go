package live

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/holdfast/holdfast/internal/frames"
	"github.com/holdfast/holdfast/internal/pg"
	"github.com/holdfast/holdfast/internal/telemetry"
)

// Hub delivers the frames of channels to the subscribers of one process. It is
// safe for concurrent use.
type Hub struct {
	config Config
	// sampling has room for the samples that are read at the same time.
	sampling chan struct{}
	// checkNow makes the hub compare the versions at once.
	checkNow chan struct{}

	// background returns a context that ends with Run. What the hub reads for
	// its subscribers is read within one.
	background func() (context.Context, context.CancelFunc)
	cancel     context.CancelFunc // ends them all
	ended      chan struct{}      // closed when the hub has ended
	running    sync.WaitGroup

	// mu guards what follows, and what channels and tenants have. It is locked
	// before the lock of a mailbox.
	mu       sync.Mutex
	stopped  bool
	tenants  map[uuid.UUID]*tenant
	channels int
	unread   []*tenant // to be read by readers
	readers  int
	// connections counts those of all tenants. sessions are those of them that
	// are WebSockets.
	connections int
	sessions    map[*session]struct{}
}

// tenant is a tenant with subscribers or connections in this process.
type tenant struct {
	id          uuid.UUID
	channels    map[string]*channel
	connections int
	// unread are the channels of which a snapshot is to be read. queued means
	// that the tenant is in Hub.unread, waits for notBefore, or is being read.
	unread    []*channel
	queued    bool
	notBefore time.Time
}

// channel is a channel with subscribers in this process.
type channel struct {
	tenant      *tenant
	name        string
	subscribers map[*Subscription]struct{}
	// version is the last version that was received or read.
	version int64
	// ahead is a version that was found in the database and is above version.
	// It is 0, or about to be received.
	ahead int64
	// unread means that the channel is in tenant.unread. reading means that a
	// snapshot is being read, and since has the frames that arrived meanwhile.
	unread, reading bool
	since           []Frame
	// stop ends the samples of a sampled channel, and sample is the last one, of
	// the state.
	stop   context.CancelFunc
	sample *Frame
	state  json.RawMessage
}

// New returns a hub. Run makes it deliver.
func New(c Config) (*Hub, error) {
	c.Limits = c.Limits.withDefaults()
	if err := c.validate(); err != nil {
		return nil, err
	}
	h := &Hub{
		config: c, sampling: make(chan struct{}, SamplesMax),
		checkNow: make(chan struct{}, 1), ended: make(chan struct{}),
		tenants: make(map[uuid.UUID]*tenant), sessions: make(map[*session]struct{}),
	}
	background, cancel := context.WithCancel(context.Background())
	h.cancel = cancel
	h.background = func() (context.Context, context.CancelFunc) { return context.WithCancel(background) }
	return h, nil
}

// Run listens and delivers until ctx ends. Then it closes all connections with
// the status 1001 (going away), ends all subscriptions, and returns nil once
// they have ended, which takes about a second at most.
func (h *Hub) Run(ctx context.Context) error {
	var group errgroup.Group
	listener := pg.Listener{
		DB: h.config.Pool, Channel: frames.Channel, Received: h.receive,
		Began: func(context.Context) error {
			// Frames that were sent while it did not listen are lost.
			select {
			case h.checkNow <- struct{}{}:
			default:
			}
			return nil
		},
		Lost: func(ctx context.Context, err error) {
			h.config.Log.WarnContext(ctx, "lost the connection that listens for live frames; the versions of channels are compared every second", "error", err)
		},
	}
	group.Go(func() error { return listener.Run(ctx) })
	group.Go(func() error { h.checkVersions(ctx); return nil })
	group.Go(func() error { h.checkKeys(ctx); return nil })
	<-ctx.Done()
	h.stop()
	err := group.Wait()
	h.running.Wait()
	return err
}

// stop ends all connections and subscriptions.
func (h *Hub) stop() {
	h.mu.Lock()
	stopped := h.stopped
	h.stopped = true
	for s := range h.sessions {
		s.end(goingAway)
	}
	h.mu.Unlock()
	if !stopped {
		h.cancel()
		close(h.ended)
	}
}

// Subscribe subscribes to a channel of the tenant. The caller has checked that
// its own caller has access to the channel, and must call Close. What is queued
// is bounded as for a connection. The number of subscriptions is not, so the
// caller calls Connect for each of its clients.
//
// Errors: ErrUnknownChannel, ErrTooManySubscriptions, ErrStopped.
func (h *Hub) Subscribe(tenantID uuid.UUID, channel string) (*Subscription, error) {
	return h.subscribe(newMailbox(&h.config.Limits), tenantID, channel)
}

// Connect counts a client of the tenant as a connection until release is
// called.
//
// Errors: ErrTenantConnections, ErrConnections, ErrStopped.
func (h *Hub) Connect(tenantID uuid.UUID) (release func(), err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.stopped {
		return nil, ErrStopped
	}
	t := h.tenant(tenantID)
	switch {
	case t.connections >= h.config.Limits.TenantConnections:
		err = ErrTenantConnections
	case h.connections >= h.config.Limits.Connections:
		err = ErrConnections
	}
	if err != nil {
		h.forget(t)
		return nil, err
	}
	t.connections++
	h.connections++
	telemetry.LiveConnected(context.Background(), 1)
	return sync.OnceFunc(func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		t.connections--
		h.connections--
		telemetry.LiveConnected(context.Background(), -1)
		h.forget(t)
	}), nil
}

// tenant returns the tenant with that id. The caller holds h.mu.
func (h *Hub) tenant(id uuid.UUID) *tenant {
	t := h.tenants[id]
	if t == nil {
		t = &tenant{id: id, channels: make(map[string]*channel)}
		h.tenants[id] = t
	}
	return t
}

// forget removes a tenant without subscribers and connections. The caller holds
// h.mu.
func (h *Hub) forget(t *tenant) {
	if h.tenants[t.id] == t && len(t.channels) == 0 && t.connections == 0 && !t.queued {
		delete(h.tenants, t.id)
	}
}

func (h *Hub) subscribe(box *mailbox, tenantID uuid.UUID, name string) (*Subscription, error) {
	if !h.exists(name) {
		return nil, ErrUnknownChannel
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.stopped {
		return nil, ErrStopped
	}
	t := h.tenant(tenantID)
	c := t.channels[name]
	if c == nil {
		if h.channels >= h.config.Limits.Channels || len(t.channels) >= h.config.Limits.TenantChannels {
			h.forget(t)
			return nil, ErrTooManySubscriptions
		}
		c = &channel{tenant: t, name: name, subscribers: make(map[*Subscription]struct{})}
		t.channels[name] = c
		h.channels++
		if sampled := h.sampledAs(name); sampled != nil {
			h.startSampling(c, sampled)
		}
	}
	s := &Subscription{hub: h, channel: c, box: box}
	c.subscribers[s] = struct{}{}
	telemetry.LiveSubscribed(context.Background(), 1)
	box.mu.Lock()
	s.makeReady()
	box.mu.Unlock()
	return s, nil
}

// leave ends a subscription.
func (h *Hub) leave(s *Subscription) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s.box.mu.Lock()
	s.clear()
	s.state = closed
	s.box.ready = slices.DeleteFunc(s.box.ready, func(other *Subscription) bool { return other == s })
	s.box.mu.Unlock()
	c := s.channel
	if _, found := c.subscribers[s]; !found {
		return
	}
	delete(c.subscribers, s)
	telemetry.LiveSubscribed(context.Background(), -1)
	if len(c.subscribers) > 0 {
		return
	}
	if c.stop != nil {
		c.stop()
	}
	delete(c.tenant.channels, c.name)
	h.channels--
	h.forget(c.tenant)
}

// receive delivers the frames of a notification.
func (h *Hub) receive(payload string) {
	if !h.hasChannels() {
		return
	}
	sent, err := frames.Decode(payload)
	if err != nil {
		h.config.Log.Warn("ignored a notification that is not a list of frames", "error", err)
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range sent {
		t := h.tenants[sent[i].TenantID]
		if t == nil {
			continue
		}
		if c := t.channels[sent[i].Channel]; c != nil && c.stop == nil {
			c.deliver(newFrame(sent[i]))
		}
	}
}

func (h *Hub) hasChannels() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.channels > 0
}

// sinceMax bounds the frames that are kept while a snapshot is read. If there
// are more, the snapshot is read again.
const sinceMax = 256

// deliver offers a frame to all subscribers. A frame that begins a state which
// they know already means that the state was deleted, or that the frame is late:
// they need a snapshot, which they share. The caller holds the hub's lock.
func (c *channel) deliver(f Frame) {
	if c.reading {
		if len(c.since) == sinceMax {
			c.since = append(c.since[:0], c.since[1:]...)
		}
		c.since = append(c.since, f)
	}
	c.advance(&f)
	for s := range c.subscribers {
		s.offer(&f)
	}
}

// advance notes that the frame was received. The caller holds the hub's lock.
func (c *channel) advance(f *Frame) {
	if f.begins() {
		c.version = f.Version
	} else {
		c.version = max(c.version, f.Version)
	}
}
