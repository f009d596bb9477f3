// Package admission admits requests: it does what happens to a request before
// its row exists.
//
// [Intake] admits requests in groups: while one group's transaction commits,
// the next one gathers. Package requests inserts the rows, and a caller is
// answered once its row is committed. If all callers of a group wait for their
// outcomes, the same transaction first decides the requests, with the step of
// package queues, and inserts them as they were decided.
//
// Callers wait in one bounded queue per lane, fair by tenant. A request that
// would wait too long is refused before anything is written ([RefusedError]). A
// caller whose idempotency key is known receives its first answer, even if it
// is refused. A key that another transaction keeps locked delays no other
// caller for long: the group is bisected.
//
// After a commit the intake wakes the workers, once for all groups that were
// committed meanwhile. If a wake is lost, the request waits for the next tick.
//
// The package has no SQL.
package admission
