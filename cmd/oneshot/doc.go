// Command oneshot runs one bounded pass and exits, for a scheduler such as
// Cloud Run jobs:
//
//	oneshot [sweep|drain|recover|purge|verify|migrate]
//
// sweep (the default) expires due holds, drain decides what is queued, recover
// takes over requests whose isolated retry was not finished, and the checkouts
// that are due, purge deletes what is finished and old, verify checks the
// invariants, migrate brings the schema up to date.
//
// It reads the environment described in docs/configuration.md, prints a report
// as one line of JSON on stdout, and logs JSON lines to stderr. It exits with
// 0, with 1 when it failed or an invariant is broken, or with 2 for a bad
// command line.
//
// A pass that SIGTERM stops midway reports "more" and exits with 0: the next
// scheduled pass continues. Only migrate then exits with 1, because it has no
// schedule. A deployment that waits for it (Terraform's run_execution_token,
// gcloud's --wait, Compose's service_completed_successfully) would take a 0 to
// mean that the schema is new, and replace the programs. The new programs
// refuse the old schema, so on a platform that stops the old ones first, no
// program would serve.
//
// Every pass is correct when it runs late, twice or concurrently.
// CLOUD_RUN_TASK_INDEX and CLOUD_RUN_TASK_COUNT divide the work where possible.
// drain is divided by slots and purge by streams. sweep and recover divide the
// rows by skipping locked ones. verify and migrate run in the first task. No
// River client is started: wakes are only hints, and a leader would discard
// jobs of unknown kinds.
package main
