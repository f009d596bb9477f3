// Package holdfast admits reservations under load, on one Postgres with River
// as the queue. It wires the packages below. This sells two shirts, on a
// database that Migrate has migrated:
//
//	func sell(ctx context.Context, pool *pgxpool.Pool) ([]holdfast.Reservation, error) {
//		client, err := holdfast.New(pool, nil)
//		if err != nil {
//			return nil, err
//		}
//		if err := client.Start(ctx); err != nil {
//			return nil, err
//		}
//		defer func() { _ = client.Stop(ctx) }()
//		shop, err := client.Tenant(ctx, "shop")
//		if err != nil {
//			return nil, err
//		}
//		if _, err := shop.SetStock(ctx, "shirt", holdfast.StockPatch{Stock: new(int64(3))}, nil); err != nil {
//			return nil, err
//		}
//		added, err := shop.Add(ctx, "ann's", "shirt", 2, nil)
//		if err != nil {
//			return nil, err
//		}
//		if _, err := shop.Wait(ctx, added.RequestID, 10*time.Second); err != nil {
//			return nil, err
//		}
//		return shop.Checkout(ctx, "ann's", nil)
//	}
//
// An add-to-cart (or a ticket, a booking, a quota) is accepted at once and
// queued in a status table. Workers decide requests in order and merge many of
// them into one short transaction. What was granted is held until a deadline,
// then committed, released or expired. Nothing is oversold, and no accepted
// request is lost.
//
// # Words
//
// One word for one idea, in code, SQL, JSON and prose. Everything else has the
// standard name of the field.
//
//   - Request: what a caller asked for, a row of the status table. It is
//     queued, then processing (only during an isolated retry), then done, or
//     failed with a reason.
//   - Outcome: what was decided about a request: held, or rejected with a
//     reason. Sold out is an outcome, never an error.
//   - Reservation: units that are kept for a holder until a deadline. It is
//     held, then committed, released or expired.
//   - Hold, commit, release, extend, expire: the five verbs of a reservation.
//     To hold is to make one.
//   - Resource: what is reserved: a kind (inventory.variant), a key of that
//     kind, and optionally a window of time.
//   - Variant: the resource that a shop sells. It has a stock.
//   - Stock, reserved, available: the counters of a variant. Available is stock
//     minus reserved plus the units of due holds.
//   - Due: held, and past its deadline on the database's clock.
//   - Posting: one unit with its own identity, in a block of such units: a seat
//     of a hall. It is active, then pending_inactive while a reservation owns
//     it, then inactive.
//   - Holder: what a reservation is for: a cart, a checkout.
//   - Tenant: a customer of the service, the first part of every key.
//   - Lane: hot (contended variants, strictly in order) or normal (all others,
//     in parallel). Each lane is a River queue.
//   - Stream, slot: an ordered sequence of requests within a lane, and its
//     number. A hot variant belongs to one slot. The normal lane has slot 0,
//     and slot 1 for tenants that flood it.
//   - Lease: the exclusive right to drain a slot, a row lock that is held for
//     one transaction.
//   - Low-water mark: a sequence number at or below which a stream has no
//     queued request.
//   - Wake: a River job that reports that a slot has work. It carries no work.
//   - Drain: one transaction that claims requests, decides them and writes the
//     results.
//   - Tick: the drain that runs every second whether a wake arrived or not.
//   - Isolated retry: the path of a request that fails on its own. It is
//     claimed visibly and tried alone, with backoff.
//   - Checkout: a durable saga that commits what a cart holds through a payment.
//   - Projection: a read model that is folded from the audit log.
//   - Sweep: one bounded pass of maintenance.
//
// # Promises
//
//   - No oversell: in every committed state 0 ≤ reserved, and reserved ≤ stock
//     unless the variant allows backorder.
//   - No lost request: a request that was answered 202 becomes done or failed,
//     once, and that answer never changes, across the death of any process and
//     a crash of Postgres.
//   - One effect per tenant and idempotency key, for the retention time.
//   - One ending: a reservation is committed, released or expired, exactly one
//     of them, once.
//   - Expiry is never early by the database's clock, and a due hold never
//     blocks a new buyer.
//   - A complete record: every transition of a reservation and every failed
//     request has one audit row, written in the same transaction.
//   - Isolation: no key of a tenant can read, change or detect the rows or the
//     load of another tenant, and a hot variant does not slow the normal lane.
//   - First come, first served within a hot variant: a request that was
//     accepted before another one was sent is decided first.
//
// Not promised: exactly-once execution, an order between variants, or anything
// about the failover of an asynchronous replica.
//
// # Packages
//
// Imports and SQL point down only, and one package writes each table. The
// architecture test in this folder checks both.
//
//	cmd/…                          programs: configuration and lifecycle
//	bench, chaos                   measured claims; the fault harness
//	examples/storefront            a sample product page on the HTTP API
//	examples/…                     a ticket sale, court hours, the move from SELECT … FOR UPDATE
//	client                         a Go client of the HTTP API
//	projections                    read models folded from the audit log
//	queues/hot, queues/normal      scheduling and order of each lane; detection
//	sweeper, verify                bounded passes of maintenance; the invariants
//	requests                       what a request is: its status, its reason, its outcome
//	metered, ratelimit             tokens, budgets, commands; rates
//	reservations                   the kernel: five verbs for any kind of resource
//	postings                       units with their own identity, and who owns them
//	audit                          the append-only record and its tail
//	migrations                     the schema
//
// What only the packages above use:
//
//	internal/httpapi               the HTTP API
//	internal/dashboard             the operator's page
//	internal/wiring                joins the parts of a process
//	internal/ops                   the operator's reads
//	internal/carts                 checkout and the other synchronous calls, committed in groups
//	internal/admission             what happens before the row: fair queue, load shedding, direct decision
//	internal/ready                 the read models that every worker runs
//	internal/live                  delivers the frames of channels to clients
//	internal/queues                wakes, the drain
//	internal/signals               how many requests arrive, by variant and tenant
//	internal/checkouts/callback    asks a shop whether a checkout is paid
//	internal/checkouts             the checkout saga and its recovery
//	internal/requestrows           the status table, and waiting for a request
//	internal/inventory             stocks and carts
//	internal/tenants               tenants, API keys, idempotent answers
//	internal/unitrows              the rows of units with their own identity
//	internal/tokens                the rows of single-use tokens, redeemed in groups
//	internal/lanes                 lanes, streams, pins, routing
//	internal/…                     Postgres errors, telemetry, test support
package holdfast
