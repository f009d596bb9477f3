// Package reservations is the kernel: it holds, commits, releases, extends and
// expires units of any Resource with a capacity. A reservation is a number of
// units of a resource that a holder has until a deadline.
//
//	        hold             commit
//	(none) ──────▶ held ──────────────▶ committed
//	               │  │    release
//	        extend └──┤ ──────────────▶ released
//	                  │    expire
//	                  └───────────────▶ expired
//
// The three ended statuses are final. Every transition is guarded by the status
// it leaves, and writes its audit row in the same transaction.
//
// Kernel counts under a lock of the key. It never writes a counter of the
// caller. Package internal/reservationrows writes the rows, for package
// inventory too; Reservation and its statuses are declared there and named
// here.
//
// Lock order: the key, then reservations by (tenant, id) within one statement.
// The verbs on a handle lock the reservations without the key, because they
// change no counter. A hold that expires due holds takes several statements for
// that, so a verb on several handles can deadlock with it; verbs that begin
// their own transaction then repeat it.
//
// It depends on pgx and uuid only.
package reservations
