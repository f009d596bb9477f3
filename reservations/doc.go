// Package reservations is the kernel: it holds, commits, releases, extends and expires units of any Resource that can
// tell its capacity. A reservation is units of a resource set aside for a holder until a deadline.
//
//	        hold             commit
//	(none) ──────▶ held ──────────────▶ committed
//	               │  │    release
//	        extend └──┤ ──────────────▶ released
//	                  │    expire
//	                  └───────────────▶ expired
//
// The three endings have no way out. Every transition is guarded by the status it leaves and writes its audit row in
// the same transaction.
//
// Kernel counts under a lock of the key. It never writes a counter of the caller's. The rows are written by
// internal/reservationrows, which package inventory uses too; Reservation and its statuses are declared there and named
// here. Lock order: the key, then reservations by (tenant, id) within one statement. The verbs on a handle take the
// reservations without the key, because they move no counter. A hold that expires what is due takes several statements for
// it, so a verb on several handles can deadlock with it; verbs that begin their own transaction then repeat it.
//
// It depends on pgx and uuid only.
package reservations
