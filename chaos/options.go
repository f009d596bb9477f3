package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/holdfast/holdfast/internal/chaos/stage"
)

// options of one storm.
type options struct {
	length   time.Duration
	seed     uint64
	shoppers int
	json     bool
	planOnly bool
	rollout  bool
	without  string // kinds of faults, separated by commas, that are left out
	upgrade  string // the revision to upgrade from, or sameRevision; empty: none
	rows     int    // the number of finished requests before an upgrade
	cells    int    // 0: one database without a name
	metered  bool
	race     bool
	slowdown int
	logs     string // the folder for the logs; empty: none are kept
}

const (
	shortest = 10 * time.Second
	longest  = 2 * time.Hour
)

func (o *options) flags(f *flag.FlagSet) {
	f.DurationVar(&o.length, "for", 5*time.Minute, "how long the storm lasts")
	f.Uint64Var(&o.seed, "seed", 1, "seed from which the faults and the calls are drawn")
	f.IntVar(&o.shoppers, "shoppers", 24, "number of buyers that act at the same time")
	f.BoolVar(&o.json, "json", false, "print the report as JSON")
	f.BoolVar(&o.planOnly, "plan", false, "print the faults and run nothing")
	f.BoolVar(&o.rollout, "rollout", false, "replace each program three times, one after the other, and inject no other fault")
	f.StringVar(&o.without, "without", "", "kinds of faults, separated by commas, that are left out of the plan; the others stay the same")
	f.StringVar(&o.upgrade, "upgrade", "", "begin with the programs of this git revision, then migrate and replace them, and inject no other fault; . is the checkout, upgraded to itself with one additional migration")
	f.IntVar(&o.rows, "rows", 2_000_000, "number of finished requests before an upgrade")
	f.IntVar(&o.cells, "cells", 0, "number of cells among which tenants are moved during the storm, by a program that is killed now and then; 0: one database")
	f.BoolVar(&o.metered, "metered", false, "run with METERED_COMMANDS_ENABLED and rates that are never reached")
	f.BoolVar(&o.race, "race", false, "build the programs with the race detector")
	f.IntVar(&o.slowdown, "slowdown", 1, "factor by which timeouts are multiplied, for a busy machine")
	f.StringVar(&o.logs, "logs", "", "folder for the logs of the programs and of Postgres")
}

func (o *options) check() error {
	switch {
	case o.length < shortest || o.length > longest:
		return errors.New("-for must be between 10s and 2h")
	case o.slowdown < 1 || o.slowdown > 100:
		return errors.New("-slowdown must be between 1 and 100")
	case o.rollout && o.upgrade != "":
		return errors.New("-rollout and -upgrade exclude each other")
	case o.without != "" && (o.rollout || o.upgrade != ""):
		return errors.New("-without excludes -rollout and -upgrade")
	case o.cells != 0 && (o.cells < 2 || o.cells > 9):
		return errors.New("-cells must be between 2 and 9, or 0")
	case o.cells != 0 && (o.rollout || o.upgrade != ""):
		return errors.New("-cells excludes -rollout and -upgrade")
	case o.unknown() != "":
		return fmt.Errorf("-without: there is no fault %q", o.unknown())
	case o.rows < 0 || o.rows > 100_000_000:
		return errors.New("-rows must be between 0 and 100000000")
	case o.shoppers < 1 || o.shoppers > 1000:
		return errors.New("-shoppers must be between 1 and 1000")
	}
	return nil
}

// plan returns the faults of the storm.
func (o *options) plan() []stage.Fault {
	switch {
	case o.upgrade != "":
		return stage.Upgrade(o.length)
	case o.rollout:
		return stage.Rollout(o.length)
	default:
		plan := stage.Plan(o.seed, o.length)
		if o.cells > 0 {
			plan = append(plan, stage.Moves(o.length)...)
			slices.SortStableFunc(plan, func(a, b stage.Fault) int { return cmp.Compare(a.At, b.At) })
		}
		return slices.DeleteFunc(plan, func(f stage.Fault) bool { return slices.Contains(o.leftOut(), f.Kind) })
	}
}

// leftOut are the kinds of faults in without.
func (o *options) leftOut() (kinds []stage.Kind) {
	for kind := range strings.SplitSeq(o.without, ",") {
		if kind != "" {
			kinds = append(kinds, stage.Kind(kind))
		}
	}
	return kinds
}

// unknown returns the first kind in without that no plan has, "" for none.
func (o *options) unknown() stage.Kind {
	for _, kind := range o.leftOut() {
		if !stage.Drawn(kind) {
			return kind
		}
	}
	return ""
}

// again returns the flags that repeat this storm, except its length and seed.
func (o *options) again() string {
	switch {
	case o.upgrade != "":
		return fmt.Sprintf(" -upgrade %s -rows %d", o.upgrade, o.rows)
	case o.rollout:
		return " -rollout"
	}
	var again string
	if o.cells > 0 {
		again = fmt.Sprint(" -cells ", o.cells)
	}
	if o.without != "" {
		again += " -without " + o.without
	}
	return again
}
