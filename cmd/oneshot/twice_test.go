package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast/holdfast/cmd/internal/boot"
	"github.com/holdfast/holdfast/cmd/internal/programtest"
)

const (
	twiceRequests = 200
	twiceUnits    = 120
)

// twice is the expected result of two concurrent executions of a pass.
type twice struct {
	// prepare makes the work of the pass.
	prepare func(*testing.T, *programtest.Fixture)
	// hold is a statement whose locks are kept until both executions wait for
	// them, or one has ended because the other has taken all the work.
	hold string
	// sum is the sum of both reports.
	sum map[string]float64
	// want are the rows afterwards. none is a statement that must count no
	// rows.
	want programtest.Count
	none string
}

const decidedOtherThanOnceSQL = `
SELECT count(*)
FROM reservation_requests AS r
WHERE (SELECT count(*) FROM audit_log AS a WHERE a.target_id = r.request_id AND a.action IN ('reservation.held', 'request.failed')) <> 1`

// longDueSQL counts holds that a sweep does not leave to the next one.
const longDueSQL = `SELECT count(*) FROM reservations WHERE status = 'held' AND expires_at < clock_timestamp() - interval '6 s'`

const expiredOtherThanOnceSQL = `
SELECT count(*)
FROM reservations AS r
WHERE (SELECT count(*) FROM audit_log AS a WHERE a.target_id = r.reservation_id AND a.action = 'reservation.expired') <> 1`

const migratedOtherThanOnceSQL = `
SELECT count(*)
FROM generate_series(1, 6) AS wanted -- up to lockingMigration
WHERE (SELECT count(*) FROM river.river_migration AS m WHERE m.version = wanted) <> 1`

func queue(_ *testing.T, shop *programtest.Fixture) {
	shop.Stock("shirt", twiceUnits)
	shop.Admit("shirt", twiceRequests)
}

// queued prepares queued requests, drains them if drained is set, and runs the
// statements.
func queued(drained bool, statements ...string) func(*testing.T, *programtest.Fixture) {
	return func(t *testing.T, shop *programtest.Fixture) {
		t.Helper()
		queue(t, shop)
		if drained {
			pass(t, shop, "drain")
		}
		for _, sql := range statements {
			if _, err := shop.DB.Exec(t.Context(), sql); err != nil {
				t.Fatal(err)
			}
		}
	}
}

var decidedOnce = programtest.Count{Done: twiceUnits, Failed: twiceRequests - twiceUnits, Held: twiceUnits}

var twices = map[string]twice{
	"sweep": {
		prepare: func(t *testing.T, shop *programtest.Fixture) {
			t.Helper()
			queue(t, shop)
			pass(t, shop, "drain", "HOLD_TTL", "1s")
			shop.Until("all holds are due for so long that a sweep waits for their stock", func() bool { return shop.Int(longDueSQL) == twiceUnits })
		},
		hold: `LOCK TABLE inventory_stocks IN ACCESS EXCLUSIVE MODE`,
		sum:  map[string]float64{"expired_count": twiceUnits},
		want: programtest.Count{Done: twiceUnits, Failed: twiceRequests - twiceUnits}, none: expiredOtherThanOnceSQL,
	},
	"drain": {
		prepare: queue, hold: `LOCK TABLE inventory_stocks IN ACCESS EXCLUSIVE MODE`,
		sum:  map[string]float64{"held": twiceUnits, "rejected": twiceRequests - twiceUnits},
		want: decidedOnce, none: decidedOtherThanOnceSQL,
	},
	"recover": {
		prepare: queued(false, abandonSQL), hold: `LOCK TABLE inventory_stocks IN ACCESS EXCLUSIVE MODE`,
		sum:  map[string]float64{"held": twiceUnits, "rejected": twiceRequests - twiceUnits},
		want: decidedOnce, none: decidedOtherThanOnceSQL,
	},
	"purge": { // the holds have ended, and all rows are as old as the requests
		prepare: queued(true, lapseSQL, `UPDATE inventory_stocks SET reserved = 0`,
			`UPDATE reservations SET status = 'expired', release_reason = 'ttl', ended_at = expires_at`,
			`UPDATE reservations SET first_held_at = first_held_at - interval '10 days', held_at = held_at - interval '10 days',
				expires_at = expires_at - interval '10 days', ended_at = ended_at - interval '10 days'`,
			`UPDATE audit_log SET created_at = created_at - interval '10 days'`, ageSQL),
		hold: `LOCK TABLE reservation_requests IN ACCESS EXCLUSIVE MODE`,
		sum:  map[string]float64{"requests": twiceRequests, "reservations": twiceUnits},
		none: `SELECT count(*) FROM reservations`,
	},
	"verify": {
		prepare: queued(true), hold: `LOCK TABLE reservation_requests IN ACCESS EXCLUSIVE MODE`,
		want: decidedOnce, none: decidedOtherThanOnceSQL,
	},
	"migrate": {
		prepare: func(t *testing.T, shop *programtest.Fixture) {
			t.Helper()
			queued(true)(t, shop)
			revertMigrations(t, shop)
		},
		hold: `LOCK TABLE river.river_job IN ACCESS SHARE MODE`,
		want: decidedOnce, none: migratedOtherThanOnceSQL,
	},
}

// There are two concurrent executions of each pass, each in a separate process.
// Both end with 0, the work is done once, and no invariant is broken.
func TestTwoExecutions(t *testing.T) {
	t.Parallel()
	for command := range strings.SplitSeq(boot.PassNames(), "|") {
		t.Run(command, func(t *testing.T) {
			t.Parallel()
			c, ok := twices[command]
			if !ok {
				t.Fatal("the pass has no case here")
			}
			shop := programtest.NewFixture(t)
			c.prepare(t, shop)
			reports := c.run(t, shop, command)
			sum := map[string]float64{}
			for name := range c.sum {
				for _, report := range reports {
					n, _ := report[name].(float64)
					sum[name] += n
				}
			}
			if diff := cmp.Diff(c.sum, sum); diff != "" && len(c.sum) > 0 {
				t.Errorf("both reports %v add up to (-want +got):\n%s", reports, diff)
			}
			if diff := cmp.Diff(c.want, shop.Count()); diff != "" {
				t.Errorf("rows (-want +got):\n%s", diff)
			}
			if n := shop.Int(c.none); n != 0 {
				t.Errorf("%d rows of %s, want none", n, c.none)
			}
			shop.Verify()
		})
	}
}

// run starts the pass twice, lets both continue once they overlap, and returns
// their reports.
func (c twice) run(t *testing.T, shop *programtest.Fixture, command string) (reports []map[string]any) {
	t.Helper()
	blocker, err := shop.DB.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = blocker.Rollback(t.Context()) }()
	if _, err := blocker.Exec(t.Context(), c.hold); err != nil {
		t.Fatal(err)
	}
	names := []string{"first", "second"}
	var both []*programtest.Process
	for _, name := range names {
		env := shop.Env("DATABASE_URL", shop.URL+"&application_name="+name, "SWEEP_BATCH", "20", "HOT_BATCH", "20", "NORMAL_BATCH", "20")
		both = append(both, programtest.StartProcess(t, env, command))
	}
	waits := func(name string) bool {
		return shop.Int(`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock' AND application_name = '`+name+`'`) > 0
	}
	shop.Until("both executions overlap", func() bool {
		return slices.ContainsFunc(names, waits) && (waits(names[0]) || both[0].Stdout.String() != "") && (waits(names[1]) || both[1].Stdout.String() != "")
	})
	if err := blocker.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i, process := range both {
		if code := process.Wait(); code != 0 {
			t.Errorf("the %s ended with %d:\n%s", names[i], code, process.Stderr)
		}
		report := reportOf(t, process.Stdout.String())
		if ok, has := report["ok"]; has && ok != true {
			t.Errorf("the %s found a broken invariant: %v", names[i], report)
		}
		reports = append(reports, report)
	}
	return reports
}
