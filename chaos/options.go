package main

import (
	"errors"
	"flag"
	"time"
)

// options say how a storm is run.
type options struct {
	length   time.Duration
	seed     uint64
	shoppers int
	json     bool
	planOnly bool
	rollout  bool
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
	case o.shoppers < 1 || o.shoppers > 1000:
		return errors.New("-shoppers must be between 1 and 1000")
	}
	return nil
}
