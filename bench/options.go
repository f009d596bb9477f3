package main

import (
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// options are the command line's.
type options struct {
	suites []string
	json   bool
	// page and plot are files to write; empty for none.
	page, plot string

	reps     int
	cold     bool          // no warm-up
	long     time.Duration // of one repetition of one contender
	rows     int           // finished rows of the growth suite
	variants int           // variants of the spread suite
	conns    int           // of a flood: maximum concurrent calls
	// sustained is how long the load of the sustained suite lasts.
	sustained time.Duration
	verbose   bool
	// profile is the folder for the profiles of the ledger suite; empty for none.
	profile string
}

// first is the number of the first repetition: 0, the warm-up, whose figures do
// not count, or 1 without a warm-up.
func (o *options) first() int {
	if o.cold {
		return 1
	}
	return 0
}

func parse(args []string, stderr io.Writer) (options, error) {
	var o options
	var names string
	var seconds float64
	var short bool
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&names, "suite", "all", "what to measure: all, or some of "+strings.Join(suiteNames(), ","))
	flags.BoolVar(&o.json, "json", false, "print one JSON object per measure")
	flags.StringVar(&o.page, "page", "", "write the page of figures to this `file`")
	flags.StringVar(&o.plot, "plot", "", "write the plot to this `file`")
	flags.IntVar(&o.reps, "reps", 5, "repetitions")
	flags.Float64Var(&seconds, "seconds", 2.5, "length of one repetition of one contender")
	flags.IntVar(&o.rows, "rows", 2_000_000, "finished requests and reservations of the growth suite")
	flags.IntVar(&o.variants, "variants", 10_000, "variants of the spread suite")
	flags.IntVar(&o.conns, "conns", 4096, "maximum concurrent calls of a flood")
	flags.DurationVar(&o.sustained, "sustained", 0, "how long the sustained suite's load lasts (10m; 1m in a run of all suites)")
	flags.BoolVar(&short, "short", false, "a quick run without warm-up, whose figures mean nothing")
	flags.StringVar(&o.profile, "profile", "", "write the profiles of the API and the worker in the ledger suite to this `folder`")
	flags.BoolVar(&o.verbose, "v", false, "show what the programs log")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if flags.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q: use flags", flags.Arg(0))
	}
	o.long = time.Duration(seconds * float64(time.Second))
	if short {
		o.reps, o.long, o.rows, o.variants = 1, 100*time.Millisecond, 2000, 100
		o.cold, o.conns, o.sustained = true, 64, 2*time.Second
	}
	if o.sustained == 0 {
		o.sustained = sustainedShort
		if slices.Contains(strings.Split(names, ","), "sustained") {
			o.sustained = sustainedLong
		}
	}
	if o.reps < 1 || o.long < 10*time.Millisecond || o.rows < 1 || o.variants < 1 || o.sustained <= 0 {
		return o, fmt.Errorf("want reps (%d) ≥ 1, seconds (%g) ≥ 0.01, rows (%d) and variants (%d) ≥ 1, sustained (%s) > 0",
			o.reps, seconds, o.rows, o.variants, o.sustained)
	}
	if err := o.choose(names); err != nil || o.profile == "" {
		return o, err
	}
	err := o.prepareProfiles()
	return o, err
}

// alsoCalled are measures that are taken within another suite.
var alsoCalled = map[string]string{"rss": "http", "admit_and_decide": "admit"}

// choose returns the suites of the given names.
func (o *options) choose(names string) error {
	for name := range strings.SplitSeq(names, ",") {
		if name == "all" {
			o.suites = append(o.suites, suiteNames()...)
			continue
		}
		if other, ok := alsoCalled[name]; ok {
			name = other
		}
		if !slices.Contains(suiteNames(), name) {
			return fmt.Errorf("there is no suite %q: choose all, or some of %s", name, strings.Join(suiteNames(), ", "))
		}
		o.suites = append(o.suites, name)
	}
	return nil
}
