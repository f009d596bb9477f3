// Command bench measures Holdfast against what people would write themselves, side by side in one run, on a private
// Postgres (internal/pgdev) that is the same for every side:
//
//	go run ./bench                    every suite but pinned; a table
//	go run ./bench -suite hot,wal     some of them
//	go run ./bench -json              one JSON object a measure and line, after one of the run
//	go run ./bench -suite checkout    carts that are checked out, alone and beside adds
//	go run ./bench -suite cycle       carts that are filled and checked out by the same clients
//	go run ./bench -suite mixed       adds, checkouts, removals and changes of quantity, with holds that expire
//	go run ./bench -suite ledger      what a request costs by stage: CPU time, WAL, statements
//	go run ./bench -suite pinned      throughput beside a transaction that is idle for five minutes
//	go run ./bench -suite sustained   ten minutes of load whose holds all expire; a minute of it in every run
//
// A suite warms every side up, then repeats them in turn (A B C, A B C, …), so that what the machine does meanwhile meets
// all of them. A ratio is the median of the repetitions' ratios; the spread is (largest − smallest) ÷ median. After each
// repetition the rows are counted: a side whose counters, holds and audit rows don't agree ends the run.
// So does a suite of checkouts that leaves rows which break what internal/verify checks, or a deadlock in a
// database's statistics.
//
// The first JSON object has one field, run: the machine, the CPU steal during the run, the time of an fsync and the
// raw statement's rate. Each other one is a [Measure]: noisy is true if its spread is over 30 % or the run's steal
// over 5 %, and skipped has the reason of a measure that could not be taken.
//
// The other sides are in bench/baselines, the HTTP load in bench/load. What the measures mean stands in
// docs/performance.md, which `make bench` writes.
package main
