// Package baselines has the baselines of the benchmark: what a good engineer
// would write in place of Holdfast. Each is a small type with a method Hold,
// and all use separate tables in the schema baseline. [Carts] has the verbs
// that end or change a hold, for all of them; [ExpireBatch] and [ExpireRows]
// end the holds that are due.
//
// All of them make the same promises as far as they go: no oversell, and an
// answer only after the commit of the counter, the hold and its audit row. None
// of them has idempotency keys, a queue, first come first served across
// processes, or requests that outlive the process that took them. [Check]
// counts what they left behind, and [CheckSold] what carts did.
//
// The names of the statements do not end in SQL, because their tables are not
// part of Holdfast's schema. [Raw] is the exception: it writes Holdfast's own
// rows.
package baselines
