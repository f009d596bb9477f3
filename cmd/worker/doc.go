// Command worker decides requests in the lanes that WORKER_LANES names, and
// does its share of maintenance. Any number of workers may run.
//
// It reads the environment described in docs/configuration.md, takes no
// arguments, logs JSON lines to stderr, and answers /livez, /readyz, /health
// and /metrics on PORT. It stops on SIGTERM or SIGINT once its running drains
// have ended. With INVENTORY_WORKER_ONESHOT=true it drains the queued requests,
// for ONESHOT_TIME_MAX at most, prints a report as JSON and exits.
package main
