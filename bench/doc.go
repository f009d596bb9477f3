// Command bench measures Holdfast against what people would write themselves,
// in one run on a private Postgres (internal/pgdev) that all contenders share.
// It is a separate module, so that the library does not depend on what it
// needs:
//
//	go run -C bench .                    every suite; a table
//	go run -C bench . -suite hot,wal     some of them
//	go run -C bench . -json              one JSON object per measure and line, after one of the run
//	go run -C bench . -suite checkout    carts that are checked out, alone and with concurrent adds
//	go run -C bench . -suite cycle       carts that are filled and checked out by the same clients
//	go run -C bench . -suite mixed       adds, checkouts, removals and changes of quantity, with holds that expire
//	go run -C bench . -suite ledger      what a request costs by stage: CPU time, WAL, statements
//	go run -C bench . -suite sustained   ten minutes of load whose holds all expire; a minute of it in every run
//
// A suite warms every contender up, then repeats them in turn (A B C, A B C,
// …), so that other load on the machine affects all of them. A ratio is the
// median of the repetitions' ratios; the spread is (largest − smallest) ÷
// median. After each repetition the rows are counted: a contender whose
// counters, holds and audit rows do not agree ends the run. A suite of
// checkouts also ends the run if its rows break what verify checks, or if the
// database's statistics show a deadlock.
//
// The first JSON object has one field, run: the machine, the CPU steal during
// the run, the time of an fsync and the raw statement's rate. Each other object
// is a [Measure]: noisy is true if its spread is over 30 % or the run's steal
// over 5 %, and skipped is the reason if the measure could not be taken.
//
// The baselines are in bench/baselines, the HTTP load in bench/load. What the
// measures mean is described in docs/performance.md, which `make bench` writes.
package main
