// Package boot starts and stops the parts of the programs: settings, log and
// telemetry, connections, the API, the worker, the one-shot passes, and the
// all-in-one that joins them in one process.
//
// Every program is main over run, and run is a few calls of this package. How
// the parts of Holdfast are joined is in package wiring, which the library's
// client shares. No part calls os.Exit or reads the process's environment: a
// test can start several at the same time.
//
// Invariants: a program refuses a database that could lose accepted requests,
// or that lacks migrations. Everything that is started is also stopped, in an
// order that lets calls in flight be answered, within config.Config.StopWithin.
package boot
