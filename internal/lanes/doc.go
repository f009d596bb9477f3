// Package lanes owns which stream a request enters and which transaction may
// decide it there: lanes and their streams, the lanes' controls, leases and
// low-water marks of slots, hot variants, diverted tenants, and the published
// load. It writes the tables lane_slots, lane_loads, hot_variants and
// diverted_tenants.
//
// A lane is controlled as a whole: it can be paused, and its rate can be
// capped. A stream is one slot of a lane. The lease of a slot is a row lock.
// The mark of a slot is a sequence number at or below which its stream has no
// queued request.
//
// Each hot variant has its own slot. While a variant is entering or leaving the
// hot lane, its slot decides its requests from both streams. The move ends when
// every admission that routed by the old rule has ended and the stream that the
// variant came from has no queued request of it. A pin keeps a variant hot
// until it is removed. An automatic move ([Move]) does not move pinned
// variants.
//
// The package never claims, decides or counts requests, and never reads the
// status table. It knows only the table's sequence ([Horizon]). Where one
// statement must do both, the package exports a part of the statement
// ([RouteJoin], [AdvanceMark], [Entered], [PublishLoad]), and a package above
// adds what it reads. It never decides that a variant should move: package hot
// does, or an operator.
//
// Invariants: a hot variant belongs to one slot that exists, and no slot that
// is given to a variant has another one. A variant is moved only under the lock
// of its slot, so it is never moved while its requests are decided. A mark
// never passes a queued request.
//
// Lock order: variants (advisory locks), slots in their order, then requests,
// stocks, reservations. No transaction waits for a slot that it locks only to
// move its mark.
package lanes
