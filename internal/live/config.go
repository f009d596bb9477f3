package live

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/frames"
	"github.com/holdfast/holdfast/internal/tenants"
)

// Config is what a Hub is made over.
type Config struct {
	// Pool reads tickets and keys, and makes the connection that listens, which
	// it does not count. Required.
	Pool *pgxpool.Pool
	// Log receives the errors of reads that are repeated. Required.
	Log *slog.Logger
	// Snapshots returns the states of the channels that have one, each as a
	// frame with its version. Versions returns the version of each channel, 0
	// without a state: channels[i] belongs to tenantIDs[i]. Both nil: there are
	// no channels of projections.
	Snapshots func(ctx context.Context, db audit.Querier, tenantID uuid.UUID, channels []string) ([]frames.Frame, error)
	Versions  func(ctx context.Context, db audit.Querier, tenantIDs []uuid.UUID, channels []string) ([]int64, error)
	// Sampled are the sampled channels, which every tenant has.
	Sampled []Sampled
	// Public are beginnings of the channels of projections that any key gives
	// access to. All other projections require the scope ops.
	Public []string
	Limits Limits
}

// Sampled is a channel whose state is read again and again instead of folded.
// Its frames are snapshots with a version that counts the samples that differed
// from the one before. While a subscriber has not received one, a later one
// replaces it.
type Sampled struct {
	// Channel is the name of the channel or, with SampleKey, the beginning of the
	// names of its channels: <Channel>.<key>.
	Channel string
	// Scope is what a key needs to subscribe; "" for any key.
	Scope tenants.Scope
	// Every is the pause between two samples of a tenant; 0: 1 s.
	Every time.Duration
	// Sample returns the tenant's state. It is called while the channel has a
	// subscriber, at most SamplesMax calls at a time in a process, and must end
	// with ctx.
	Sample func(ctx context.Context, tenantID uuid.UUID) (json.RawMessage, error)
	// SampleKey, in place of Sample, returns the state of one key.
	SampleKey func(ctx context.Context, tenantID uuid.UUID, key string) (json.RawMessage, error)
}

// key returns the key of a channel of that name, and whether it is one of s.
func (s *Sampled) key(channel string) (key string, is bool) {
	if s.SampleKey == nil {
		return "", channel == s.Channel
	}
	key, is = strings.CutPrefix(channel, s.Channel+".")
	return key, is && key != "" && isText(channel)
}

func (s *Sampled) read(ctx context.Context, tenantID uuid.UUID, channel string) (json.RawMessage, error) {
	if s.SampleKey == nil {
		return s.Sample(ctx, tenantID)
	}
	key, _ := s.key(channel)
	return s.SampleKey(ctx, tenantID, key)
}

// SamplesMax is how many samples are read at the same time.
const SamplesMax = 2

// Limits bound what clients can make a process cost. A field that is 0 has its
// default.
type Limits struct {
	// Connections is how many connections a process has, and TenantConnections
	// how many of them one tenant has. Defaults 4,000 and half of Connections.
	Connections, TenantConnections int
	// Subscriptions is how many channels one connection subscribes to. Default
	// 100.
	Subscriptions int
	// Channels is how many channels have subscribers in a process, and
	// TenantChannels how many of them one tenant has. Defaults 10,000 and 2,000.
	Channels, TenantChannels int
	// Frames and Bytes bound what is queued for one connection, or for one
	// subscription of Subscribe. A single snapshot may exceed Bytes. Defaults
	// 256 and 256 KiB.
	Frames, Bytes int
	// Message is the largest message of a client, in bytes. Default 4 KiB.
	Message int64
	// Heartbeat is the pause between two heartbeat frames, and Ping between two
	// pings, of which one at a time is not responded to. Defaults 10 s and 20 s.
	Heartbeat, Ping time.Duration
	// Write is how long a client may take to accept one frame, and to respond to
	// a ping. After that it is disconnected. A client that reads again before
	// receives a snapshot. Default 2 min.
	Write time.Duration
	// Age is when a connection is closed, so that clients spread over the
	// processes again. Default 1 h.
	Age time.Duration
	// KeyCheck is the pause between two checks whether the keys behind the
	// connections are still valid. Default 1 min.
	KeyCheck time.Duration
	// Check is the pause between two reads of the versions. Default 1 s.
	Check time.Duration
}

func (l Limits) withDefaults() Limits {
	l.Connections = cmp.Or(l.Connections, 4000)
	l.TenantConnections = cmp.Or(l.TenantConnections, (l.Connections+1)/2)
	l.Subscriptions = cmp.Or(l.Subscriptions, 100)
	l.Channels = cmp.Or(l.Channels, 10_000)
	l.TenantChannels = cmp.Or(l.TenantChannels, 2000)
	l.Frames = cmp.Or(l.Frames, 256)
	l.Bytes = cmp.Or(l.Bytes, 256<<10)
	l.Message = cmp.Or(l.Message, 4<<10)
	l.Heartbeat = cmp.Or(l.Heartbeat, 10*time.Second)
	l.Ping = cmp.Or(l.Ping, 20*time.Second)
	l.Write = cmp.Or(l.Write, 2*time.Minute)
	l.Age = cmp.Or(l.Age, time.Hour)
	l.KeyCheck = cmp.Or(l.KeyCheck, time.Minute)
	l.Check = cmp.Or(l.Check, time.Second)
	return l
}

func (l *Limits) validate() error {
	counts := []int{l.Connections, l.TenantConnections, l.Subscriptions, l.Channels, l.TenantChannels, l.Frames, l.Bytes, int(l.Message)}
	for _, n := range counts {
		if n < 1 {
			return fmt.Errorf("live: a limit is %d, want at least 1", n)
		}
	}
	for _, d := range []time.Duration{l.Heartbeat, l.Ping, l.Write, l.Age, l.KeyCheck, l.Check} {
		if d < time.Millisecond {
			return fmt.Errorf("live: a limit is %s, want at least 1ms", d)
		}
	}
	return nil
}

func (c *Config) validate() error {
	if c.Pool == nil || c.Log == nil {
		return errors.New("live: a pool and a log are needed")
	}
	if (c.Snapshots == nil) != (c.Versions == nil) {
		return errors.New("live: snapshots and versions are needed together")
	}
	for _, s := range c.Sampled {
		one := s.SampleKey == nil
		if !isText(s.Channel) || one == (s.Sample == nil) || one && isProjection(s.Channel) || s.Every < 0 {
			return fmt.Errorf("live: the sampled channel %.100q is not valid", s.Channel)
		}
	}
	return c.Limits.validate()
}
