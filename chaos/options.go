package main

import (
	"errors"
	"flag"
	"fmt"
	"time"

	"github.com/holdfast/holdfast/chaos/fault"
)

// options say how a storm is run.
type options struct {
	length   time.Duration
	seed     uint64
	shoppers int
	json     bool
	planOnly bool
	rollout  bool
	upgrade  string // the revision to upgrade from, or sameRevision; empty: none
	rows     int    // of finished requests before an upgrade
	metered  bool
	race     bool
	patience int
	logs     string // the folder to keep the logs in; empty: none are
}

const (
	shortest = 10 * time.Second
	longest  = 2 * time.Hour
)

func (o *options) flags(f *flag.FlagSet) {
	f.DurationVar(&o.length, "for", 5*time.Minute, "how long the storm lasts")
	f.Uint64Var(&o.seed, "seed", 1, "what determines the faults and the calls")
	f.IntVar(&o.shoppers, "shoppers", 24, "how many buyers act at one time")
	f.BoolVar(&o.json, "json", false, "print the report as JSON")
	f.BoolVar(&o.planOnly, "plan", false, "print the faults and run nothing")
	f.BoolVar(&o.rollout, "rollout", false, "replace each program three times, one after the other, and break nothing else")
	f.StringVar(&o.upgrade, "upgrade", "", "begin with the programs of this git revision, then migrate and replace them, and break nothing else; . is the checkout, upgraded to itself with one migration more")
	f.IntVar(&o.rows, "rows", 2_000_000, "how many finished requests there are before an upgrade")
	f.BoolVar(&o.metered, "metered", false, "run with METERED_COMMANDS_ENABLED and rates that are never reached")
	f.BoolVar(&o.race, "race", false, "build the programs with the race detector")
	f.IntVar(&o.patience, "patience", 1, "what the limits of time are multiplied by, for a machine that is busy with other things")
	f.StringVar(&o.logs, "logs", "", "a folder to write the logs of the programs and of Postgres to")
}

func (o *options) check() error {
	switch {
	case o.length < shortest || o.length > longest:
		return errors.New("-for must be between 10s and 2h")
	case o.patience < 1 || o.patience > 100:
		return errors.New("-patience must be between 1 and 100")
	case o.rollout && o.upgrade != "":
		return errors.New("-rollout and -upgrade exclude each other")
	case o.rows < 0 || o.rows > 100_000_000:
		return errors.New("-rows must be between 0 and 100000000")
	case o.shoppers < 1 || o.shoppers > 1000:
		return errors.New("-shoppers must be between 1 and 1000")
	}
	return nil
}

// plan is what is done in the storm.
func (o *options) plan() []fault.Fault {
	switch {
	case o.upgrade != "":
		return fault.Upgrade(o.length)
	case o.rollout:
		return fault.Rollout(o.length)
	default:
		return fault.Plan(o.seed, o.length)
	}
}

// again are the flags that a storm like this one needs besides its length and seed.
func (o *options) again() string {
	switch {
	case o.upgrade != "":
		return fmt.Sprintf(" -upgrade %s -rows %d", o.upgrade, o.rows)
	case o.rollout:
		return " -rollout"
	default:
		return ""
	}
}
