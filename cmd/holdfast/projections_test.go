package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/cmd/internal/programtest"
	"github.com/holdfast/holdfast/internal/ops"
	"github.com/holdfast/holdfast/internal/pgtest"
	readymade "github.com/holdfast/holdfast/internal/ready"
	"github.com/holdfast/holdfast/projections"
)

func TestProjections(t *testing.T) {
	t.Parallel()
	shop := programtest.NewFixture(t)
	c := &tool{t, shop, shop.Env()}
	if out := strings.TrimSpace(c.run("projections", "--json")); out != "[]" && out != "null" {
		t.Errorf("without any: %q", out)
	}
	set, err := readymade.New(shop.DB, projections.Config{})
	pgtest.Must(t, err)
	feed, err := projections.NewFeed(shop.DB, projections.Config{})
	pgtest.Must(t, err)
	pgtest.Must(t, set.Register(feed))
	shop.Stock("shirt", 2)
	shop.Stock("hat", 3)
	pgtest.Exec(t, shop.DB, `INSERT INTO audit_log (tenant_id, target_id, action, actor_kind, resource_kind, resource_key, holder_id, quantity, expires_at)
		SELECT tenant_id, gen_random_uuid(), 'reservation.held', 'system', 'hall.seat', 'A1', 'holder', 1, now() FROM tenants`)
	shop.Until("the feed has folded the record", func() bool {
		_, err := feed.RunOnce(t.Context())
		pgtest.Must(t, err)
		states, err := audit.Subscriptions(t.Context(), shop.DB)
		pgtest.Must(t, err)
		return states[0].Lag == 0
	})
	var list []ops.Projection
	if err := json.Unmarshal([]byte(c.run("projections", "list", "--json")), &list); err != nil || len(list) != 2 {
		t.Fatal(list, err)
	}
	if s, out := list[1], c.run("projections"); s.Name != "stocks.availability" || s.Keys != 2 || s.Position < 2 || !strings.Contains(out, "reservations.counters") || !strings.Contains(out, "POSITION") {
		t.Errorf("the list is %+v\n%s", s, out)
	}
	if out := c.run("projections", "verify"); !strings.Contains(out, "2 variants compared, 0 wrong.") {
		t.Error(out)
	}
	pgtest.Exec(t, shop.DB, `UPDATE projection_snapshots SET state = '{}'`)
	c.park(shop)
	for command, want := range map[string]string{
		"stocks.availability":   "Rebuilt 2 states of stocks.availability.",
		"reservations.counters": "Rebuilt 1 states of reservations.counters.",
	} {
		if out := c.run("projections", "rebuild", command); !strings.Contains(out, want) {
			t.Error(out)
		}
	}
	c.rebuildShown()
	if n := pgtest.Int(t, shop.DB, `SELECT count(*) FROM projection_snapshots WHERE parked_at IS NOT NULL`); n != 0 {
		t.Errorf("%d keys are parked after the rebuild", n)
	}
	if out := c.run("projections", "verify"); !strings.Contains(out, "2 variants compared, 0 wrong.") {
		t.Error(out)
	}
	if n := pgtest.Int(t, shop.DB, `SELECT count(*) FROM projection_snapshots WHERE version = 3 AND projection_name = 'stocks.availability'`); n != 2 {
		t.Errorf("%d states have the next version", n)
	}
	pgtest.Exec(t, shop.DB, `DELETE FROM audit_log WHERE audit_id = 1`)
	if err := c.fail("projections", "rebuild", "reservations.counters"); !strings.Contains(err.Error(), "--partial") {
		t.Error(err)
	}
	if out := c.run("projections", "rebuild", "reservations.counters", "--partial"); !strings.Contains(out, "Rebuilt 1 states") {
		t.Error(out)
	}
	pgtest.Exec(t, shop.DB, `DELETE FROM audit_log`) // all of it is pruned
	if err := c.fail("projections", "rebuild", "reservations.counters"); !strings.Contains(err.Error(), "--partial") {
		t.Error(err)
	}
	if n := pgtest.Int(t, shop.DB, `SELECT count(*) FROM projection_snapshots WHERE projection_name = 'reservations.counters'`); n != 1 {
		t.Errorf("%d states are left", n)
	}
}

// park parks the counters, and checks that the command lists them.
func (c *tool) park(shop *programtest.Fixture) {
	c.t.Helper()
	if out := c.run("projections", "parked"); strings.Count(out, "\n") > 1 {
		c.t.Errorf("parked without any: %q", out)
	}
	pgtest.Exec(c.t, shop.DB, `UPDATE projection_snapshots SET parked_at = now(), parked_audit_id = 7, parked_reason = 'too large' WHERE projection_name = 'reservations.counters'`)
	var parked []ops.ParkedKey
	if err := json.Unmarshal([]byte(c.run("projections", "parked", "--json")), &parked); err != nil || len(parked) != 1 || parked[0].AuditID != 7 {
		c.t.Errorf("%+v, %v", parked, err)
	}
	if out := c.run("projections", "parked"); !strings.Contains(out, `"hall.seat"`) || !strings.Contains(out, "too large") {
		c.t.Errorf("the parked keys are\n%s", out)
	}
}

// rebuildShown rebuilds the availability of two stocks, and checks that a bar is
// drawn.
func (c *tool) rebuildShown() {
	c.t.Helper()
	stdout, bar, err := programtest.Once(c.t, run, c.env, "projections", "rebuild", "stocks.availability")
	if err != nil || stdout != "Rebuilt 2 states of stocks.availability.\n" || !strings.Contains(bar, "0/2") {
		c.t.Errorf("%q, %v; the terminal shows %q", stdout, err, bar)
	}
}
