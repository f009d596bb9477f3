package projections_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/google/uuid"

	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/projections"
)

// The feed folds each record once, in any number of deliveries, and events of
// other callers at the same time.
func TestFeed(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	a := []moved{y.move("a", "nail", 5), y.move("a", "screw", 2), y.move("a", "nail", -1)}
	y.record(a[0], y.move("b", "nail", 7), a[1])
	y.follow()
	y.record(a[2])
	y.follow()
	y.want("a", 3, a...)
	y.want("b", 1, y.move("b", "nail", 7))
	y.wantGapless("a", 3)
	_, _, position := y.state("a")
	if last := pgtest.Int(t, y.db, `SELECT max(audit_id) FROM audit_log`); position != last {
		t.Errorf("the position is %d, want %d", position, last)
	}
	y.must(y.runtime.ApplyEvent(t.Context(), y.move("a", "nail", 9)))
	y.record(y.move("a", "nail", 1))
	y.follow()
	y.want("a", 5, append(a, y.move("a", "nail", 9), y.move("a", "nail", 1))...)
	y.wantGapless("a", 5)
}

// A state is written at least once per snapshot interval, and a run of events
// is one frame if its deltas can be combined.
func TestFeedFoldsRuns(t *testing.T) {
	t.Parallel()
	const n = 1234
	for _, coalesce := range []bool{false, true} {
		t.Run(fmt.Sprint("coalesce ", coalesce), func(t *testing.T) {
			t.Parallel()
			y := newYard(t, func(p *projections.Projection[moved, totals, total]) {
				if coalesce {
					p.Coalesce = func(_, b total) total { return b }
				}
			})
			pgtest.Exec(t, y.db, `CREATE TABLE writes (version bigint)`)
			pgtest.Exec(t, y.db, `CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO writes VALUES (new.version); RETURN NULL; END $$`)
			pgtest.Exec(t, y.db, `CREATE TRIGGER note AFTER UPDATE ON projection_snapshots FOR EACH ROW EXECUTE FUNCTION note()`)
			events := make([]moved, n)
			for i := range events {
				events[i] = y.move("a", "nail", int64(i))
			}
			y.record(events...)
			y.follow()
			y.want("a", n, events...)
			if longest := pgtest.Int(t, y.db, `SELECT max(version - before) FROM (SELECT version, lag(version, 1, 0) OVER (ORDER BY version) AS before FROM writes) w`); longest != 100 {
				t.Errorf("%d events between two writes", longest)
			}
			if !coalesce {
				y.wantGapless("a", n)
				if sent := len(y.sent.of(channel("a"))); sent != n {
					t.Errorf("%d frames", sent)
				}
				return
			}
			pgtest.Until(t, "the last frame is sent", func() bool {
				frames := y.sent.of(channel("a"))
				return frames[len(frames)-1].Version == n
			})
			y.wantGapless("a", n)
			frames := y.sent.of(channel("a"))
			if last := frames[len(frames)-1]; len(frames) != 2 || string(last.Payload) != fmt.Sprintf(`{"item":"nail","total":%d}`, n*(n-1)/2) {
				t.Errorf("%d frames, the last is %+v", len(frames), last)
			}
		})
	}
}

// Records that the feed cannot fold are left out, and stop nothing.
func TestFeedLeavesOutPoison(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	pgtest.Exec(t, y.db, `ALTER TABLE projection_snapshots ADD CHECK (key <> 'refused')`)
	good := []moved{y.move("a", "nail", 5), y.move("a", "screw", 2), y.move("a", "nail", -1)}
	y.record(good[0], y.move("a", "panic", 1), good[1], y.move("a", "large", 1), good[2], y.move("refused", "nail", 1),
		y.move("", "nail", 1), y.move("only", "panic", 1))
	pgtest.Exec(t, y.db, `INSERT INTO audit_log (tenant_id, target_id, action, actor_kind, after) VALUES ($1, $1, $2, 'system', '[]')`, y.tenant, actionMoved)
	y.record(y.move("b", "nail", 1))
	y.follow()
	y.want("a", 3, good...)
	y.wantGapless("a", 3)
	y.want("b", 1, y.move("b", "nail", 1))
	if n := pgtest.Int(t, y.db, `SELECT count(*) FROM projection_snapshots`); n != 2 {
		t.Errorf("%d rows, want 2", n)
	}
	pgtest.Exec(t, y.db, `UPDATE projection_snapshots SET state = '"no object"' WHERE key = 'b'`)
	y.record(y.move("b", "nail", 1), y.move("a", "nail", 1))
	y.follow()
	y.want("a", 4, append(good, y.move("a", "nail", 1))...)
	if _, err := y.runtime.ReadRequired(t.Context(), y.key("b")); !isJSONError(err) {
		t.Errorf("an unreadable state: %v", err)
	}
}

func isJSONError(err error) bool {
	return errors.Is(err, projections.ErrJSON)
}

// A projection cannot write to the keys of another tenant.
func TestFeedKeepsTenantsApart(t *testing.T) {
	t.Parallel()
	victim := uuid.New()
	y := newYard(t, func(p *projections.Projection[moved, totals, total]) {
		p.Key = func(m moved) projections.Key { return projections.Key{TenantID: victim, Key: m.Warehouse} }
	})
	y.record(y.move("a", "nail", 5))
	y.follow()
	if n := pgtest.Int(t, y.db, `SELECT count(*) FROM projection_snapshots`); n != 0 {
		t.Errorf("%d rows", n)
	}
}

// A rebuild that is ahead of the feed makes the feed leave out what the state
// contains. One from the record, at any time, equals the fold.
func TestFeedAfterRebuild(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	all := []moved{y.move("a", "nail", 5), y.move("a", "screw", 2), y.move("a", "nail", -1), y.move("a", "nail", 3)}
	y.record(all[0])
	y.follow()
	y.record(all[1], all[2])
	ahead := pgtest.Int(t, y.db, `SELECT max(audit_id) FROM audit_log`)
	_, err := y.runtime.Rebuild(t.Context(), y.key("a"), slices.Values(all[:3]), ahead)
	y.must(err)
	y.record(all[3])
	y.follow()
	y.want("a", 3, all...) // one event, the rebuild, one event
	y.wantGapless("a", 3)

	pgtest.Exec(t, y.db, `UPDATE projection_snapshots SET state = '{}'`)
	y.record(y.move("b", "nail", 1))
	y.follow()
	pgtest.Exec(t, y.db, `INSERT INTO projection_snapshots (tenant_id, projection_name, key, state, version) VALUES ($1, 'warehouses.totals', 'gone', '{}', 4)`, y.tenant)
	y.record(y.move("a", "nail", 100)) // not folded yet
	n, err := y.feed.RebuildFromRecord(t.Context(), "warehouses.totals", nil)
	if err != nil || n != 2 {
		t.Errorf("%d rebuilt, %v", n, err)
	}
	y.want("a", 4, all...)
	y.want("b", 2, y.move("b", "nail", 1))
	if _, found, err := y.runtime.Read(t.Context(), y.key("gone")); found || err != nil {
		t.Errorf("a key without a record: found %t, %v", found, err)
	}
	y.follow()
	y.want("a", 5, append(all, y.move("a", "nail", 100))...)
	key := y.key("a")
	if n, err := y.feed.RebuildFromRecord(t.Context(), "warehouses.totals", &key); err != nil || n != 1 {
		t.Errorf("%d rebuilt, %v", n, err)
	}
	y.want("a", 6, append(all, y.move("a", "nail", 100))...)
	y.want("b", 2, y.move("b", "nail", 1))
	if _, err := y.feed.RebuildFromRecord(t.Context(), "no.such", nil); err == nil {
		t.Error("an unknown projection is rebuilt")
	}
}

func TestRegister(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.must(y.runtime.Register(y.feed))
	if names := y.feed.Names(); len(names) != 1 {
		t.Errorf("registered twice: %v", names)
	}
	y.record(y.move("a", "nail", 5))
	y.follow()
	y.want("a", 1, y.move("a", "nail", 5))
	for _, name := range []string{"warehouses.totals", "warehouses", "warehouses.totals.more"} {
		p := warehouses()
		p.Name = name
		other, err := projections.New(y.db, p, projections.Config{})
		y.must(err)
		if err := other.Register(y.feed); err == nil {
			t.Errorf("%s shares channels", name)
		}
	}
	p := warehouses()
	p.Name, p.Source = "other", nil
	manual, err := projections.New(y.db, p, projections.Config{})
	y.must(err)
	if err := manual.Register(y.feed); err == nil {
		t.Error("a projection without a source is registered")
	}
}

// A failed broadcast does not stop the feed.
func TestFeedWithoutBroadcast(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.sent.broken = true
	y.record(y.move("a", "nail", 5))
	y.follow()
	y.sent.broken = false
	y.record(y.move("a", "nail", 6))
	y.follow()
	y.want("a", 2, y.move("a", "nail", 5), y.move("a", "nail", 6))
	if frames := y.sent.of(channel("a")); len(frames) != 1 || frames[0].First != 2 || !json.Valid(frames[0].Payload) {
		t.Errorf("%+v", frames)
	}
}
