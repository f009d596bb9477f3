package main

import (
	"testing"
	"time"

	"github.com/holdfast/holdfast/chaos/fault"
)

// TestRollout replaces two APIs and two workers three times each, by SIGTERM, under half a minute of load: every one exits
// with 0 within 10 s, at most 1 % of the calls are not served, and nothing is lost or done twice.
func TestRollout(t *testing.T) {
	t.Parallel()
	o := options{length: 30 * time.Second, seed: 1, shoppers: 12, patience: 4, rollout: true}
	report, err := weather(t.Context(), o, t.Output())
	if err != nil {
		t.Fatal(err)
	}
	if err := report.print(t.Output(), false); err != nil {
		t.Error(err)
	}
	if !report.OK || report.Faults[fault.Stop] != 12 || report.Acknowledged == 0 {
		t.Errorf("%d programs were replaced and %d requests acknowledged: see the report", report.Faults[fault.Stop], report.Acknowledged)
	}
}

// TestStorm is a short storm over the real programs. Other tests run on the same machine, so times may be longer; no other
// rule is relaxed. `make chaos` is the long form.
func TestStorm(t *testing.T) {
	t.Parallel()
	o := options{length: 20 * time.Second, seed: 1, shoppers: 12, patience: 4}
	report, err := weather(t.Context(), o, t.Output())
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
		t.Errorf("%d requests were acknowledged, %d decided, under the faults %v: that is no storm", report.Acknowledged, report.Decided, report.Faults)
	}
}

// TestUpgrade migrates and replaces every program under load, among many finished requests and while another transaction has
// read them: no call is answered with an error but while programs are replaced, and 99 % of the adds are answered within two
// seconds. The new version is the checkout with one migration more, because a shallow clone has no older one.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	o := options{length: 30 * time.Second, seed: 1, shoppers: 12, patience: 4, upgrade: sameRevision, rows: 20_000}
	report, err := weather(t.Context(), o, t.Output())
	if err != nil {
		t.Fatal(err)
	}
	if err := report.print(t.Output(), false); err != nil {
		t.Error(err)
	}
	if !report.OK || report.Faults[fault.Stop] != 4 || report.Upgrade.HeldSeconds == 0 || report.Acknowledged == 0 {
		t.Errorf("%d programs were replaced and %d requests acknowledged: see the report", report.Faults[fault.Stop], report.Acknowledged)
	}
}
