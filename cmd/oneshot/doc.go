// Command oneshot runs one bounded pass and exits, for a scheduler such as Cloud Run jobs:
//
//	oneshot [sweep|drain|recover|purge|verify|migrate]
//
// sweep (the default) expires due holds, drain decides what is queued, recover takes over what a careful attempt left
// behind, purge deletes what is finished and old, verify checks the invariants, migrate brings the schema up to date.
//
// It reads the environment described in docs/configuration.md, prints a report as one line of JSON on stdout, logs JSON
// lines to stderr, and exits with 0, with 1 when it failed or an invariant is broken, or with 2 for a bad command line. A
// pass that SIGTERM stops midway reports "more" and exits with 0: the next one of the schedule goes on. Only migrate exits
// with 1 then. It has no schedule, and a deployment that waits for it (Terraform's run_execution_token, gcloud's --wait,
// Compose's service_completed_successfully) would take a 0 for the new schema and replace the programs. The new ones refuse
// the old schema, so on a platform that stops the old ones first none would serve.
//
// Every pass is right when it is run late, twice or at once. CLOUD_RUN_TASK_INDEX and CLOUD_RUN_TASK_COUNT share out what
// can be: drain by slots and purge by streams; sweep and recover share by what is not locked; verify and migrate are the
// first task's. No River client is started: wakes are only hints, and a leader would discard jobs it does not know.
package main
