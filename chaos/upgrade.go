package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/holdfast/holdfast/internal/chaos/stage"
	"github.com/holdfast/holdfast/internal/chaos/traffic"
	"github.com/holdfast/holdfast/internal/sleep"
)

const (
	ruleUpgradeServed = "an upgrade answers no call with an error, except while programs are replaced"
	ruleUpgradeFast   = "in an upgrade 99 % of the adds are answered within 2 s, during the migration too"
	ruleUpgraded      = "an upgrade migrates, and replaces every program once"
)

// upgradeAddMax is the limit of the p99 of the adds.
const upgradeAddMax = 2 * time.Second

// The phases of an upgrade.
const (
	phaseBefore    = "before"
	phaseMigrating = "migrating"
	phaseMigrated  = "migrated"
	phaseReplacing = "replacing"
	phaseAfter     = "after"
)

// upgrade is the state of one upgrade.
type upgrade struct {
	calls    *traffic.Traffic
	migrated chan struct{} // closed when the migration has ended
	err      error         // why the migration failed; set before migrated is closed
	took     time.Duration // of the migration
	held     time.Duration // the part of it in which another transaction had read the requests
	first    sync.Once     // before the first program is replaced
	replaced int           // programs; guarded by the injector's mutex
}

func newUpgrade(calls *traffic.Traffic) *upgrade {
	calls.Phase(phaseBefore, false)
	return &upgrade{calls: calls, migrated: make(chan struct{})}
}

const anyRequestSQL = `SELECT count(*) FROM (SELECT FROM reservation_requests LIMIT 1) AS any_request`

// migrate runs the new version's migrations while another transaction that has
// read the requests is open, as a report or a dump would be.
func (b *injector) migrate(ctx context.Context, f stage.Fault) (err error) {
	defer func() {
		b.upgrading.err = err
		close(b.upgrading.migrated)
	}()
	tx, err := b.db().Begin(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(ctx) }()
	var some int
	if err := tx.QueryRow(ctx, anyRequestSQL).Scan(&some); err != nil {
		return err
	}
	began := time.Now()
	b.upgrading.calls.Phase(phaseMigrating, false)
	ended := make(chan error, 1)
	go func() {
		out, err := b.oneshot(ctx, newVersion, "migrate")
		if err != nil {
			err = fmt.Errorf("%w\n%s", err, out)
		}
		ended <- err
	}()
	_ = sleep.For(ctx, f.For)
	select {
	case err := <-ended:
		if err == nil && b.upgrade == sameRevision {
			b.findings.Add(ruleUpgraded, "the migration ended while a transaction that had read the requests was open, so it did not lock their table")
		}
		ended <- err
	default:
	}
	if err := tx.Rollback(ctx); err != nil {
		return err
	}
	b.upgrading.held = time.Since(began)
	if err := <-ended; err != nil {
		return err
	}
	b.upgrading.took = time.Since(began)
	b.upgrading.calls.Phase(phaseMigrated, false)
	b.printf("migrated in %.1fs", b.upgrading.took.Seconds())
	return nil
}

// renew replaces a program by the one of the new version, after the migration.
func (b *injector) renew(ctx context.Context, p *stage.Program, after time.Duration) error {
	if <-b.upgrading.migrated; b.upgrading.err != nil { // migrate has reported the error
		return nil
	}
	b.upgrading.first.Do(func() { b.upgrading.calls.Phase(phaseReplacing, true) })
	p.Use(b.program(newVersion, kind(p.Name)))
	if err := b.replace(ctx, p, after); err != nil {
		return err
	}
	b.mu.Lock()
	b.upgrading.replaced++
	last := b.upgrading.replaced == len(stage.Programs)
	b.mu.Unlock()
	if last {
		b.upgrading.calls.Phase(phaseAfter, false)
	}
	return nil
}

// checkUpgrade checks the rules of an upgrade.
func (b *injector) checkUpgrade() {
	u := b.upgrading
	u.calls.EndPhases()
	for _, p := range u.calls.Phases()[1:] {
		for _, answer := range slices.Sorted(maps.Keys(p.Unserved)) {
			if !p.Replacing {
				b.findings.Add(ruleUpgradeServed, "%s: %d × %s", p.Name, p.Unserved[answer], answer)
			}
		}
	}
	seen := map[string]bool{}
	for _, p := range u.calls.Phases() {
		seen[p.Name] = true
		if p.Adds == 0 {
			b.findings.Add(ruleUpgraded, "%s: no add", p.Name)
		}
		if limit := b.timeout(upgradeAddMax); p.P99MS > milliseconds(limit) {
			b.findings.Add(ruleUpgradeFast, "%s: the p99 of %d adds is %.0f ms, above %s", p.Name, p.Adds, p.P99MS, limit)
		}
	}
	for _, name := range []string{phaseBefore, phaseMigrating, phaseMigrated, phaseReplacing, phaseAfter} {
		if !seen[name] {
			b.findings.Add(ruleUpgraded, "the phase %s did not begin", name)
		}
	}
	for _, name := range stage.Programs {
		if n := b.programs[name].Starts(); n != 2 {
			b.findings.Add(ruleUpgraded, "%s was started %d times", name, n)
		}
	}
}

// upgradeReport is the result of an upgrade.
type upgradeReport struct {
	From string `json:"from"`
	Rows int    `json:"rows"`
	// MigrationSeconds is the duration of the migration. HeldSeconds is the
	// part of it in which another transaction had read the requests.
	MigrationSeconds float64               `json:"migration_seconds"`
	HeldSeconds      float64               `json:"held_seconds"`
	Phases           []traffic.PhaseReport `json:"phases"`
}

func (u *upgrade) report(o options) *upgradeReport {
	return &upgradeReport{
		From: o.upgrade, Rows: o.rows, MigrationSeconds: u.took.Seconds(), HeldSeconds: u.held.Seconds(), Phases: u.calls.Phases(),
	}
}

func (r *upgradeReport) print(out io.Writer) {
	fmt.Fprintf(out, "\nupgraded from %s with %d finished requests: the migration took %.1fs, of which another transaction had read the requests for %.1fs\n",
		r.From, r.Rows, r.MigrationSeconds, r.HeldSeconds)
	fmt.Fprintf(out, "%-10s %8s %8s %9s %9s %9s %9s  not served\n", "phase", "seconds", "adds", "p50 ms", "p99 ms", "max ms", "attempts")
	for _, p := range r.Phases {
		fmt.Fprintf(out, "%-10s %8.1f %8d %9.1f %9.1f %9.1f %9d  %s\n", p.Name, p.Seconds, p.Adds, p.P50MS, p.P99MS, p.MaxMS, p.Attempts, most(p.Unserved, 6))
	}
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
