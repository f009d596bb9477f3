// Package metered is for commands that cost something: it reserves budget, spends a one-time grant and starts durable
// work, in one transaction of the caller's database, together or not at all.
//
// Four primitives, each usable alone:
//
//   - [BudgetLedger]: signed amounts in an append-only ledger, per tenant and scope; a reservation is granted only if the
//     sum over a sliding window stays within its limit.
//   - [TokenStore]: expiring tokens, each spent once at most.
//   - [JobStore]: work enqueued on River under an idempotency key, which is remembered for a time of its own, and whose end is
//     recorded once.
//   - [Rate]: how much may be asked for at once and in a while, refilled evenly; one number a scope, and no ledger.
//
// And three ways to put them together, in each of which a member has all it asks for or nothing, and pays for nobody else:
//
//   - [Gate] lets a group through that is charged to budgets and spends tokens, in two round trips.
//   - [Turnstile] lets a group through that is counted in rates and spends tokens, with the caller's own writes in the same
//     round trip.
//   - [Commands] reserves, spends and starts the work of one command in one call.
//
// It knows no business: scopes, purposes, subjects, limits, windows and units are the caller's. It has no routes, because
// what it promises holds inside one transaction with the caller's own writes. It reads no clock but the database's, and
// never keeps or logs the plaintext of a token.
//
// Invariants, at every committed state and whatever dies:
//
//   - No budget is over-committed: at the moment of a reservation the sum over its window, itself included, is within the
//     limit it was asked under.
//   - No rate lets more than its limit through at once.
//   - A token is spent once at most, before it expires, for its own purpose and subject.
//   - One (tenant, queue, idempotency key) stands for one job, which exists if and only if its transaction committed.
//   - Of the runs of a command's job one at most commits its end, and with it its event.
//
// Its tables are a set of migrations of their own: [github.com/holdfast/holdfast/migrations.UpMetered].
//
// # Refusals
//
// All verbs refuse in one style. A refusal is an error that is [ErrRefused]; nothing has changed and the caller's transaction
// can go on. A verb for one returns it, a verb for a group has it as the member's Err, so that it costs the others nothing.
//
//	errors.Is               with fields         refuses
//	ErrInvalid              *InvalidError       bad input, by the field: the zero tenant too
//	ErrOverBudget           *OverBudgetError    reserve, gate, run
//	ErrOverRate             *OverRateError      turnstile
//	ErrTokenRefused         one of six reasons  consume, gate, turnstile, run
//	ErrKeyReused            –                   enqueue, run
//	ErrUnknownReservation   –                   settle, release
//	ErrSettled              –                   settle, release
//	ErrUnknownCommand       –                   status
//	ErrEnded                –                   complete, fail
//	ErrForeignJob           –                   complete, fail, CommandOf
//
// After any other error the caller must roll back.
//
// # Locks and isolation
//
// Locks are taken in the order command keys → budget scopes (sorted) → tokens (sorted) → rates (sorted), after all that
// other packages lock, and by one group a transaction.
//
// Verbs without Tx run at READ COMMITTED, whatever the database's default is. Verbs that join the caller's transaction are
// right at every level: above READ COMMITTED a lost race is a serialization failure (SQLSTATE 40001). The one exception,
// [BudgetLedger.SettleTx], needs READ COMMITTED and checks it in the database: see [ErrIsolation].
package metered
