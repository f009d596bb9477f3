// Package projections folds events into read models and sends each change to
// live channels.
//
// A [Projection] names a key for each event and a pure function that folds the
// event into the state of that key. A [Runtime] stores one row per key in
// projection_snapshots: the state, its version and its position in the audit
// log. A [Feed] reads the audit log and folds each record into every projection
// that is registered with it.
//
// Invariants:
//
//   - The version of a key increases by one per event and by one per rebuild.
//   - The states that a feed changes and the feed's own position move in one
//     transaction, so each record changes a projection once, whatever crashes.
//   - Events that cannot be folded are left out, and cost a bounded amount of
//     work: a key at which they cost more is parked until a rebuild.
//   - One key is serial, different keys are parallel, in all processes. The
//     row's lock is the only lock.
//   - A frame is sent after the commit of its state. A frame can be lost or
//     arrive late, the state cannot: a client that finds a gap reads the state
//     again.
//
// Lock order: rows by (tenant, projection, key), each by its bytes, after all
// locks of the packages below. The package never decides anything about a
// reservation, and it writes no other table.
package projections
