// Package stage has the faults of a storm, and their targets.
//
// A [Fault] has a kind and a target; a seed determines the plan of them, and a
// [Timeline] has those that took place. The targets are a private [Postgres]
// that can be stopped and started again, and Holdfast's programs, each a
// separate process. A program that exits unexpectedly is reported and started
// again, as its platform would do. A [PostgresLog] keeps the server's errors.
// Each is explained by its SQLSTATE together with a fault that causes it and
// that lasted then, or had just ended. Bad SQL, violated constraints, deadlocks
// and the like are explained by no fault.
//
// Between each program and Postgres is a [Route] of a [Wire], a TCP proxy that
// breaks connections on purpose: at a COMMIT, all at once, or by delivering
// nothing for a while. One program can lose its database while the others keep
// theirs. The proxy reads the messages of the frontend/backend protocol
// (chapter 55 of the PostgreSQL manual) only to find a COMMIT: the statement,
// or the Sync that ends a pipeline with writes. It does not change or keep
// messages.
package stage
