package main

import (
	"testing"
	"time"

	"github.com/holdfast/holdfast/internal/chaos/stage"
)

// TestRollout replaces two APIs and two workers three times each, by SIGTERM,
// under load. Every process exits with 0. At most
// 1 % of the calls are not served, and no request is lost or takes effect
// twice.
func TestRollout(t *testing.T) {
	t.Parallel()
	o := options{length: 20 * time.Second, seed: 1, shoppers: 8, slowdown: 40, rollout: true}
	report, err := runStorm(t.Context(), o, t.Output())
	if err != nil {
		t.Fatal(err)
	}
	if err := report.print(t.Output(), false); err != nil {
		t.Error(err)
	}
	if !report.OK || report.Faults[stage.Stop] != 12 || report.Acknowledged == 0 {
		t.Errorf("%d programs were replaced and %d requests acknowledged: see the report", report.Faults[stage.Stop], report.Acknowledged)
	}
}

// TestStorm is a short storm with the real programs. Other tests run on the
// same machine, so no rule on how long something takes decides; no other rule is
// relaxed. `make chaos` is the long form.
func TestStorm(t *testing.T) {
	t.Parallel()
	o := options{length: 15 * time.Second, seed: 1, shoppers: 8, slowdown: 40}
	report, err := runStorm(t.Context(), o, t.Output())
	if err != nil {
		t.Fatal(err)
	}
	if err := report.print(t.Output(), false); err != nil {
		t.Error(err)
	}
	if !report.OK {
		t.Error("promises were broken: see the report")
	}
	if report.Acknowledged == 0 || report.Decided == 0 || len(report.Faults) < 3 {
		t.Errorf("%d requests were acknowledged, %d decided, under the faults %v: that is not a storm", report.Acknowledged, report.Decided, report.Faults)
	}
}

// TestUpgrade migrates and replaces every program under load. The database has
// finished requests, and another transaction has read them. Calls are answered
// with an error only while programs are replaced. The new version is the checkout
// with one additional migration, because a shallow clone has no older revision.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	o := options{length: 20 * time.Second, seed: 1, shoppers: 8, slowdown: 40, upgrade: sameRevision, rows: 2_000}
	report, err := runStorm(t.Context(), o, t.Output())
	if err != nil {
		t.Fatal(err)
	}
	if err := report.print(t.Output(), false); err != nil {
		t.Error(err)
	}
	if !report.OK || report.Faults[stage.Stop] != 4 || report.Upgrade.HeldSeconds == 0 || report.Acknowledged == 0 {
		t.Errorf("%d programs were replaced and %d requests acknowledged: see the report", report.Faults[stage.Stop], report.Acknowledged)
	}
}

// TestCellsStorm is TestStorm over three cells, among which tenants are moved.
func TestCellsStorm(t *testing.T) {
	t.Parallel()
	o := options{length: 12 * time.Second, seed: 1, shoppers: 4, slowdown: 40, cells: 3}
	report, err := runStorm(t.Context(), o, t.Output())
	if err != nil {
		t.Fatal(err)
	}
	if err := report.print(t.Output(), false); err != nil {
		t.Error(err)
	}
	if !report.OK || report.Moved == 0 || report.Acknowledged == 0 {
		t.Errorf("%d tenants were moved and %d requests acknowledged: see the report", report.Moved, report.Acknowledged)
	}
}
