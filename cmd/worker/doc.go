// Command worker decides requests in the lanes that WORKER_LANES names, and does its share of
// maintenance. Any number of workers may run.
//
// It reads the environment described in docs/configuration.md, takes no arguments, logs JSON lines to stderr, answers
// /livez, /readyz, /health and /metrics on PORT, and stops on SIGTERM or SIGINT once the drains it is at have ended. With
// INVENTORY_WORKER_ONESHOT=true it drains what there is, up to ONESHOT_TIME_MAX, prints a report as JSON and exits.
package main
