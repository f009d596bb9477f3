// Package reservations owns the reservation: units of a resource set aside for a holder until a deadline, and its one
// state machine.
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
// Kernel is the whole of it for any Resource that can say its capacity: it counts, under a lock of the key. The functions
// beside it move sets of reservations and do not count: whoever owns the resource (package inventory
// for variants) locks its own row first, then calls them. Lock order: the resource's row, then reservations by
// (tenant, id). Extend alone takes the reservation without the resource, because it moves no counter.
//
// It depends on pgx and uuid only.
package reservations
