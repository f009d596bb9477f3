// Package groupcommit commits the calls of many callers in groups: while one
// group's transaction commits, the next one gathers. No caller waits for a
// timer, and a lone call is a group of one.
//
// An [Engine] has queues, each with its committers. A queue is first come, first
// served within a tenant, and round robin over the tenants. Its length is
// bounded, in total and per tenant. A member of a queue embeds a [Call], with which its caller waits. A group whose
// commit fails is split ([Split], [Halves]) until the member that fails is
// alone. A group that waits for a row which another transaction has locked is
// split beside the committers ([Engine.Bisect]), and the key of the row is
// remembered in a [LockedSet], so that no further group waits for it.
//
// What a group does in the database is the caller's. The package has no SQL.
package groupcommit
