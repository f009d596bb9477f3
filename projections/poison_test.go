package projections_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/projections"
)

// counted is a state that counts how often its JSON form is made and read.
type counted struct {
	Events, Large, Later int
	Text                 string
	encodes              *int
}

type plainCounted struct {
	Events, Large, Later int
	Text                 string
}

var errLarge = errors.New("the state cannot be encoded")

func (c *counted) MarshalJSON() ([]byte, error) {
	if c.encodes != nil {
		*c.encodes++
	}
	if c.Large > 0 {
		return nil, errLarge
	}
	return json.Marshal(plainCounted{c.Events, c.Large, c.Later, c.Text})
}

// An event that cannot be folded stops nothing: 1 in 100 of 2,000 events fails,
// the state has 40 KB, and the feed folds all others in one delivery. The number
// of encodings stays within that of a bisection.
func TestLargeStateWithPoison(t *testing.T) {
	t.Parallel()
	const n, every = 2000, 100
	for _, item := range []string{"panic", "large"} {
		t.Run(item, func(t *testing.T) {
			t.Parallel()
			y := newYard(t)
			encodes := 0
			config := projections.Config{Send: y.sent.Send, Log: quiet, Lease: time.Minute}
			runtime, err := projections.New(y.db, projections.Projection[moved, counted, struct{}]{
				Name: "warehouses.counted",
				Key:  func(m moved) projections.Key { return projections.Key{TenantID: m.Tenant, Key: m.Warehouse} },
				Apply: func(s *counted, m moved) struct{} {
					s.encodes = &encodes
					s.Events++
					switch m.Item {
					case "first":
						s.Text = strings.Repeat("x", 40_000)
					case "panic":
						panic("a broken event")
					case "large":
						s.Large++
					}
					return struct{}{}
				},
				Source: &projections.Source[moved]{Decode: decodeMoved},
			}, config)
			y.must(err)
			feed, err := projections.NewFeed(y.db, config)
			y.must(err)
			y.must(runtime.Register(feed))
			y.feed = feed
			events := make([]moved, n)
			for i := range events {
				events[i] = y.move("a", "nail", 1)
				if i%every == 37 {
					events[i].Item = item
				}
			}
			events[0].Item = "first"
			y.record(events...)
			y.follow()
			state, err := runtime.ReadRequired(t.Context(), y.key("a"))
			y.must(err)
			if want := n - n/every; state.Events != want || len(state.Text) != 40_000 {
				t.Errorf("%d events are folded, want %d", state.Events, want)
			}
			if failures := pgtest.Int(t, y.db, `SELECT failures FROM audit_subscriptions`); failures != 0 {
				t.Errorf("%d deliveries failed", failures)
			}
			const most = n/every*(2*7+2) + n/100 // log₂ 100 < 7
			if encodes > most {
				t.Errorf("%d encodings, want at most %d", encodes, most)
			}
			t.Logf("%d encodings", encodes)
		})
	}
}

// Runs of any mixture of events that fail are folded as one by one.
func TestPoisonIsFoldedAsOneByOne(t *testing.T) {
	t.Parallel()
	for _, coalesce := range []bool{false, true} {
		t.Run(fmt.Sprint("coalesce ", coalesce), func(t *testing.T) {
			t.Parallel()
			y := newYard(t, func(p *projections.Projection[moved, totals, total]) {
				if coalesce {
					p.Coalesce = func(_, b total) total { return b }
				}
			})
			feed, err := projections.NewFeed(y.db, projections.Config{
				Send: y.sent.Send, Log: quiet, Lease: time.Minute,
			})
			y.must(err)
			y.must(y.runtime.Register(feed))
			y.feed = feed
			var events, good []moved
			for i := range 120 {
				m := y.move("a", "nail", int64(i))
				switch {
				case i%7 == 3, i >= 40 && i < 60:
					m.Item = "panic"
				case i%23 == 5, i >= 115:
					m.Item = "unfit"
				default:
					good = append(good, m)
				}
				events = append(events, m)
			}
			y.record(events...)
			y.follow()
			y.want("a", int64(len(good)), good...)
			pgtest.Until(t, "the last frame is sent", func() bool {
				frames := y.sent.of(channel("a"))
				return len(frames) > 0 && frames[len(frames)-1].Version == int64(len(good))
			})
			y.wantGapless("a", int64(len(good)))
		})
	}
}

// A Coalesce that panics costs a frame its payload, and no event.
func TestCoalescePanics(t *testing.T) {
	t.Parallel()
	y := newYard(t, func(p *projections.Projection[moved, totals, total]) {
		p.Coalesce = func(_, _ total) total { panic("a broken Coalesce") }
	})
	events := []moved{y.move("a", "nail", 1), y.move("a", "nail", 2), y.move("a", "nail", 3)}
	for _, m := range events { // the sender combines the second and the third
		y.must(y.runtime.ApplyEvent(t.Context(), m))
	}
	y.record(y.move("b", "nail", 1), y.move("b", "nail", 2)) // the fold combines both
	y.follow()
	y.want("a", 3, events...)
	y.want("b", 2, y.move("b", "nail", 1), y.move("b", "nail", 2))
	for warehouse, version := range map[string]int64{"a": 3, "b": 2} {
		var last projections.Frame
		pgtest.Until(t, "the last frame is sent", func() bool {
			frames := y.sent.of(channel(warehouse))
			if len(frames) > 0 {
				last = frames[len(frames)-1]
			}
			return last.Version == version
		})
		if last.First < last.Version && last.Payload != nil {
			t.Errorf("%s: the combined frame is %+v", warehouse, last)
		}
	}
}

// A delivery that takes longer than the lease is not repeated for ever: the next
// ones are smaller, until they succeed. Then they grow again.
func TestSlowDeliveriesShrink(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	const batch = 64
	feed, err := projections.NewFeed(y.db, projections.Config{
		Send: y.sent.Send, Log: quiet, Batch: batch, Lease: 2 * time.Second,
	})
	y.must(err)
	y.must(y.runtime.Register(feed))
	pgtest.Exec(t, y.db, `CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(0.04); RETURN new; END $$`)
	pgtest.Exec(t, y.db, `CREATE TRIGGER slow BEFORE UPDATE ON projection_snapshots FOR EACH ROW EXECUTE FUNCTION slow()`)
	for i := range batch {
		y.record(y.move(fmt.Sprint("w", i), "nail", 1))
	}
	failed, most := 0, 0
	next := func() bool {
		report, err := feed.RunOnce(t.Context())
		if err != nil {
			failed++
		}
		most = max(most, report.Delivered)
		states, err := audit.Subscriptions(t.Context(), y.db)
		y.must(err)
		return states[0].Lag == 0
	}
	pgtest.Until(t, "the feed has folded the record", next)
	if n := pgtest.Int(t, y.db, `SELECT count(*) FROM projection_snapshots WHERE version = 1`); n != batch || failed == 0 || most >= batch {
		t.Errorf("%d states, %d deliveries failed, the largest of the others has %d records", n, failed, most)
	}
	pgtest.Exec(t, y.db, `DROP TRIGGER slow ON projection_snapshots`)
	events := make([]moved, 20*batch)
	for i := range events {
		events[i] = y.move("w0", "nail", 1)
	}
	y.record(events...)
	pgtest.Until(t, "the feed has folded the record", next)
	if most != batch {
		t.Errorf("the largest delivery has %d records, want %d", most, batch)
	}
}
