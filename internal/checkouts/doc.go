// Package checkouts owns the checkout saga: it commits everything a cart holds
// through a payment, without a database lock across the payment.
//
//	Begin                    Answer(Paid)             Finalize
//	──────▶ validating ───────────────────▶ finalizing ───────▶ committed
//	            │                               │
//	            │ Answer(Failed), deadline      │ a hold is lost
//	            ▼                               ▼
//	        compensated                       failed
//
// The row of a checkout is its write-ahead record. Its status is the phase: a
// validating checkout has reserved and waits for the payment, a finalizing one
// was paid and commits next. The last three statuses are final. The reserve
// step and the record are one transaction of one Postgres, so that no reader
// ever sees a checkout that is still reserving, and there is no such status.
//
// Every step is one transaction under the lock of the record, guarded by the
// status it leaves, and writes its audit row (checkout.begun,
// checkout.extended, checkout.paid, checkout.committed, checkout.compensated,
// checkout.failed, checkout.alert). A step that is repeated changes nothing. If
// a process dies between two steps, a [Recovery] takes the next one: it
// finalizes what was paid, and compensates what was not paid by its deadline. A
// checkout with a callback is not compensated before its [Validator] was called
// once.
//
// The holds of an unfinished checkout are locked to it: every other verb
// refuses them with reservationrows.ErrCheckoutInProgress. Their deadline is that
// of the checkout plus [Margin] until it is paid, and [KeptFor] after that, so
// that a checkout ends before its holds do.
//
// Finalize distinguishes "held by us", "committed by us" and "lost" by counts
// under the locks. A paid checkout that has lost a hold fails, and a payment
// that is reported too late is not accepted. Both raise an [Alert], because a
// person must give the money back. A checkout raises one alert at most.
//
// Lock order: the checkout, then stocks, then reservations. The package writes
// the table checkouts only, and changes holds through package inventory.
package checkouts
