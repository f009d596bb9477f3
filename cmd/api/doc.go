// Command api serves the HTTP API: it accepts requests, and reports their
// outcomes. The worker decides them.
//
// It reads the environment described in docs/configuration.md, takes no
// arguments, logs JSON lines to stderr, and stops on SIGTERM or SIGINT: it
// accepts no more calls, answers those in flight, and commits its admission
// queue.
package main
