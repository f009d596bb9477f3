// Package boot starts and stops the parts that the programs are made of: settings, log and telemetry, connections, the
// API, the worker, the one-shot passes, and the all-in-one that joins them in one process.
//
// Every program is main over run, and run is a few calls of this package, so the all-in-one and the separate programs
// share their wiring. No part calls os.Exit or reads the process's environment: a test can start them side by side.
//
// Invariants: a program refuses a database that could forget what was accepted, or that lacks migrations; whatever is
// started is stopped, in an order that answers what is in flight, within config.Config.StopWithin.
package boot
