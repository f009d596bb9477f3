// Package holdfast is the root of Holdfast: reservations admitted under load, on one Postgres with River as the queue.
// It holds no code, only the words and the promises that every package below it keeps.
//
// A caller's add-to-cart (or ticket, booking, quota) is written down and answered at once, decided in order by workers
// that merge many requests into one short transaction, held until a deadline, and then committed, released or expired.
// Nothing is oversold and nothing that was accepted is lost.
//
// # Words
//
// One word for one idea, in code, SQL, JSON and prose:
//
//   - A request is what a caller asked for, a row of the status table: queued, then processing (seen only where a row
//     is tried alone), then done, or failed with a reason.
//   - An outcome is what was decided about a request: held, or rejected with a reason. Sold out is an outcome, never an
//     error.
//   - A reservation is a number of units set aside for a holder until a deadline: held, then committed, released or
//     expired.
//   - To hold is to make a reservation; to commit, to release, to extend and to expire are the four things that can
//     happen to it then.
//   - A resource is what is reserved: a kind (inventory.variant), a key of that kind, and perhaps a window of time.
//   - A variant is the resource a shop sells, the one with a stock.
//   - Stock is how many units of a variant there are, reserved how many of them are held, available how many a new
//     buyer can have: stock less reserved, and whatever is due added back.
//   - Due is a reservation that is held past its deadline by the database's clock, whether a sweep has seen it or not.
//   - A holder is who a reservation is for: a cart, a checkout.
//   - A lane is one of the two ways to a decision, hot (contended variants, strictly in order) and normal (all others,
//     side by side); each is a River queue.
//   - A slot is one ordered stream of a lane. A hot variant has a slot of its own, which one transaction at a time drains.
//   - A wake means that a slot has work: a River job, a notification, or a call in the same process. It carries no work:
//     losing or repeating one changes nothing but time.
//   - A drain is one transaction that claims what a lane has, decides it and writes what follows.
//   - The tick is the drain nobody asked for, each second, for what no wake reached.
//   - A sweep is one bounded pass of maintenance.
//   - A posting is one unit with an identity of its own, a seat or a serial number: active, then pending_inactive, then
//     inactive.
//   - A rate is how much may be asked for at once and in a while: a limit that is refilled evenly over a window.
//   - A budget is how much may be reserved in a sliding window, entry by entry, and settled when the cost is known.
//   - A standing is what is left of a rate right now, and when there will be more.
//   - A token is a grant to be spent once, before it expires, by whom and for what it was minted.
//   - A visit is what one member of a group shows to be let in: what it is counted in, and its token.
//   - A turnstile lets a group of visits in, each by itself, in the transaction of the group's own writes.
//   - A treatment is what the turnstile asks of a visit: nothing, to be counted, or to be counted and spend its token.
//   - A tenant is a customer of the service, the first part of every key; a correlation id is the name under which one
//     call is found again in the audit, the logs and the traces.
//
// # Promises
//
//   - No oversell: reserved lies between zero and stock in every committed state. A variant that allows backorder is
//     freed from the upper bound only.
//   - No lost request: what was answered 202 becomes done or failed, once, and stays so, through the death of any
//     process and a crash of Postgres.
//   - One effect for a tenant's idempotency key, as long as the key is remembered.
//   - One ending: a reservation is committed, released or expired, exactly one of these, once.
//   - Expiry is never early by the database's clock, and a due hold never stands in a new buyer's way.
//   - A complete record: each change of a reservation and each failed request has one audit row from the same
//     transaction.
//   - Isolation: a tenant cannot read, change or notice another's rows or load, and a hot variant does not slow the
//     normal lane.
//   - First come, first served for a hot variant: who was accepted before another asked is decided first.
//
// Not promised: that work runs exactly once (its effect happens once), an order between variants, or anything about an
// asynchronous replica that takes over.
//
// # Where things are
//
// Imports point down only, and one package writes each table; the architecture test in this folder keeps both.
//
//	cmd/…                    programs: configuration, wiring, lifecycle
//	httpapi, dashboard       the HTTP API, one endpoint a file; the operator's page
//	queues/hot, queues/normal, sweeper, projections, live, internal/verify
//	queues                   lanes, wakes, the drain
//	requests, checkouts      intake, idempotency, outcomes; the checkout saga
//	inventory, postings, metered
//	tenants, reservations    tenants and keys; the kernel of reservations
//	internal/reservationrows the rows of reservations, which inventory and the kernel write
//	audit                    the append-only record
//	migrations, internal/…   the schema; Postgres errors, telemetry, private servers for tests
package holdfast
