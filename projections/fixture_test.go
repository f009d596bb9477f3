package projections_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/projections"
)

// moved is an event: units that were moved in a warehouse.
type moved struct {
	Tenant    uuid.UUID `json:"-"`
	Warehouse string    `json:"warehouse"`
	Item      string    `json:"item"`
	Units     int64     `json:"units"`
}

// totals are the units of a warehouse. Hash depends on the order of the events.
type totals struct {
	Units  map[string]int64 `json:"units"`
	Events int64            `json:"events"`
	Hash   uint64           `json:"hash"`
	Unfit  any              `json:"unfit,omitempty"`
}

type total struct {
	Item  string `json:"item"`
	Total int64  `json:"total"`
}

const actionMoved = "units.moved"

// warehouses is the example of a projection. Its Apply panics for the item
// "panic", and makes a state that cannot be stored: for the item "large" one that
// is too large, for the item "unfit" one that has no JSON form.
func warehouses() projections.Projection[moved, totals, total] {
	return projections.Projection[moved, totals, total]{
		Name: "warehouses.totals",
		Key:  func(m moved) projections.Key { return projections.Key{TenantID: m.Tenant, Key: m.Warehouse} },
		Apply: func(s *totals, m moved) total {
			if s.Units == nil {
				s.Units = make(map[string]int64)
			}
			s.Events++
			s.Hash = s.Hash*1_000_003 + uint64(m.Units)
			if m.Item == "panic" {
				panic("a broken event")
			}
			if m.Item == "large" {
				s.Units[strings.Repeat("x", projections.StateMax)] = 1
			}
			if m.Item == "unfit" {
				s.Unfit = make(chan int)
			}
			s.Units[m.Item] += m.Units
			return total{m.Item, s.Units[m.Item]}
		},
		Source: &projections.Source[moved]{Decode: decodeMoved},
	}
}

func decodeMoved(r *audit.Record) (m moved, ok bool) {
	if r.Action != actionMoved {
		return m, false
	}
	if err := json.Unmarshal(r.After, &m); err != nil {
		panic(err)
	}
	m.Tenant = r.TenantID
	return m, true
}

// recorder is a receiver of frames that keeps the frames.
type recorder struct {
	mu     sync.Mutex
	frames []projections.Frame
	broken bool
}

var errBroken = errors.New("the broadcaster is broken")

func (r *recorder) Send(_ context.Context, frames []projections.Frame) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.broken {
		return errBroken
	}
	r.frames = append(r.frames, frames...)
	return nil
}

// of returns the frames of a channel.
func (r *recorder) of(channel string) []projections.Frame {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(r.frames), func(f projections.Frame) bool { return f.Channel != channel })
}

// yard is a database with one tenant's warehouses.
type yard struct {
	t       testing.TB
	db      *pgxpool.Pool
	tenant  uuid.UUID
	sent    *recorder
	runtime *projections.Runtime[moved, totals, total]
	feed    *projections.Feed
}

func newYard(t testing.TB, change ...func(*projections.Projection[moved, totals, total])) *yard {
	t.Helper()
	return openYard(t, pgtest.New(t), change...)
}

func openYard(t testing.TB, db *pgxpool.Pool, change ...func(*projections.Projection[moved, totals, total])) *yard {
	t.Helper()
	y := &yard{t: t, db: db, tenant: uuid.New(), sent: &recorder{}}
	p := warehouses()
	for _, fn := range change {
		fn(&p)
	}
	config := projections.Config{Send: y.sent.Send, Log: quiet, Lease: time.Minute} // a loaded machine is slow
	var err error
	y.runtime, err = projections.New(db, p, config)
	y.must(err)
	y.feed, err = projections.NewFeed(db, config)
	y.must(err)
	y.must(y.runtime.Register(y.feed))
	return y
}

func (y *yard) must(err error) {
	y.t.Helper()
	pgtest.Must(y.t, err)
}

func (y *yard) key(warehouse string) projections.Key {
	return projections.Key{TenantID: y.tenant, Key: warehouse}
}

func (y *yard) move(warehouse, item string, units int64) moved {
	return moved{y.tenant, warehouse, item, units}
}

// record writes the events to the audit log in one transaction.
func (y *yard) record(events ...moved) {
	y.t.Helper()
	y.must(pgx.BeginFunc(context.Background(), y.db, func(tx pgx.Tx) error { return recordTx(tx, events...) }))
}

func recordTx(tx pgx.Tx, events ...moved) error { return recordAsTx(tx, actionMoved, events...) }

func recordAsTx(tx pgx.Tx, action string, events ...moved) error {
	entries := make([]audit.Entry, len(events))
	for i, m := range events {
		after, err := json.Marshal(m)
		if err != nil {
			return err
		}
		entries[i] = audit.Entry{TenantID: m.Tenant, TargetID: audit.TargetOf(m.Tenant, "warehouse", m.Warehouse), Action: action, After: after}
	}
	return audit.WriteTx(context.Background(), tx, entries)
}

// follow runs the feed until it has folded the whole record.
func (y *yard) follow() {
	y.t.Helper()
	y.followTo(0)
}

// followTo runs the feed until it is at most lag ids behind.
func (y *yard) followTo(lag int64) {
	y.t.Helper()
	pgtest.Until(y.t, "the feed has folded the record", func() bool {
		_, err := y.feed.RunOnce(y.t.Context())
		y.must(err)
		states, err := audit.Subscriptions(y.t.Context(), y.db)
		y.must(err)
		return len(states) == 1 && states[0].Lag <= lag
	})
}

// state returns the stored state, its version and its position.
func (y *yard) state(warehouse string) (s totals, version, position int64) {
	y.t.Helper()
	s, err := y.runtime.ReadRequired(y.t.Context(), y.key(warehouse))
	y.must(err)
	y.must(y.db.QueryRow(y.t.Context(), `SELECT version, position FROM projection_snapshots WHERE tenant_id = $1 AND key = $2`,
		y.tenant, warehouse).Scan(&version, &position))
	return s, version, position
}

// want checks the stored state of a warehouse against a fold of the events.
func (y *yard) want(warehouse string, version int64, events ...moved) {
	y.t.Helper()
	var want totals
	for _, m := range events {
		warehouses().Apply(&want, m)
	}
	got, at, _ := y.state(warehouse)
	if fmt.Sprint(got) != fmt.Sprint(want) || at != version {
		y.t.Errorf("%s: version %d, %+v, want version %d, %+v", warehouse, at, got, version, want)
	}
}

// channel is the channel of a warehouse.
func channel(warehouse string) string { return projections.Channel("warehouses.totals", warehouse) }

// wantGapless checks that the frames of a warehouse cover the versions up to
// the given one, each once, in any order.
func (y *yard) wantGapless(warehouse string, version int64) {
	y.t.Helper()
	frames := y.sent.of(channel(warehouse))
	slices.SortFunc(frames, func(a, b projections.Frame) int { return int(a.First - b.First) })
	last := int64(0)
	for _, f := range frames {
		if f.First != last+1 || f.Version < f.First {
			y.t.Errorf("%s: a frame from version %d to %d follows version %d", warehouse, f.First, f.Version, last)
		}
		last = f.Version
	}
	if last != version {
		y.t.Errorf("%s: the last frame has version %d, want %d", warehouse, last, version)
	}
}

// quiet discards what is logged.
var quiet = slog.New(slog.DiscardHandler)
