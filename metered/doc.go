// Package metered is for commands that cost something: it reserves budget,
// redeems a single-use token and starts durable work, all or nothing, in one
// transaction of the caller's database.
//
// Three primitives, each usable alone:
//
//   - [BudgetLedger]: signed amounts in an append-only ledger, per tenant and
//     scope. A reservation is granted only if the sum over a sliding window
//     stays within its limit.
//   - [TokenStore]: expiring tokens, each redeemed at most once.
//   - [Commands.Enqueue]: work on River under an idempotency key. The key has a
//     retention of its own, and the end of the work is recorded once.
//
// [Commands.Run] composes them: it reserves, redeems and starts the work of one
// command in one call.
//
// The package contains no business policy: scopes, purposes, subjects, limits,
// windows and units are the caller's. It has no routes, because its guarantees
// hold inside one transaction with the caller's own writes. It reads no clock
// but the database's, and never stores or logs the plaintext of a token.
//
// Invariants, in every committed state and whichever process dies:
//
//   - No budget is over-committed: at the moment of a reservation the sum over
//     its window, itself included, is within the limit of its charge.
//   - A token is redeemed at most once, before it expires, for its own purpose
//     and subject.
//   - One (tenant, queue, idempotency key) has one job, which exists if and
//     only if its transaction committed.
//   - Of the runs of a command's job at most one commits its end, and its event
//     with it.
//
// A separate set of migrations creates its tables:
// [github.com/holdfast/holdfast/migrations.Up] with Config.Metered.
//
// # Refusals
//
// All verbs refuse in the same way. A refusal is an [*Error]: nothing has
// changed, and the caller's transaction can go on. errors.Is matches its kind:
//
//	kind             with fields        refuses
//	ErrInvalid       Field, Message     invalid input
//	ErrOverBudget    Charge, …          reserve, run
//	ErrTokenRefused  Reason             consume, run
//	ErrKeyReused     –                  enqueue, run
//	ErrUnknown       –                  settle, status, complete, fail, CommandOf
//	ErrSettled       –                  settle
//	ErrEnded         –                  complete, fail
//
// After any other error the caller must roll back.
//
// # Locks and isolation
//
// Locks are taken in the order command keys → budget scopes (sorted) → tokens
// (sorted). They come after the locks of all other packages, except the rates
// of package ratelimit, which come last. A transaction runs one command or
// group.
//
// Verbs without Tx run at READ COMMITTED, whatever the database's default is.
// Verbs that join the caller's transaction are correct at every level: above
// READ COMMITTED a lost race is a serialization failure (SQLSTATE 40001). The
// one exception, [BudgetLedger.SettleTx], needs READ COMMITTED and checks it in
// the database.
package metered
