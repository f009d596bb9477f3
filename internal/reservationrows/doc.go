// Package reservationrows owns the rows of the reservations table and their one
// state machine, which package reservations draws. A held reservation becomes
// committed, released or expired, which are final. Every transition is guarded
// by the status it leaves, and writes its audit row in the same transaction.
//
// Its functions change sets of reservations and do not count units. The owner
// of the resource (package inventory for variants, the kernel in package
// reservations for all other kinds) locks the resource first, counts, then
// calls them.
//
// Lock order: the resource, then reservations by (tenant, id). Verbs that
// change no counter lock reservations without the resource: Extend, and the
// kernel's Commit and Release.
//
// It depends on pgx and uuid only.
package reservationrows
