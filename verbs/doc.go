// Package verbs commits calls of the verbs that finish at once in groups: checkout, remove, release, commit and extend,
// of carts and of single holds.
//
// A group is one transaction of four round trips, or five if its calls are about several variants. It reads which holds
// the calls are about; locks their stocks in (tenant, variant) order and then the holds; decides each call individually
// under the locks (package inventory); and writes the ends, the counters, the record and the answers that are kept
// under idempotency keys. While one group commits, the next one gathers: a lone call is a group of one.
//
// A group waits for a stock only while it has no other locked. One of several variants leaves the calls whose stock
// another transaction has to transactions that follow at once, one for each such stock. On a hot variant a group waits
// like the drain of the variant's slot and like direct decisions do, and each of them does all that waits once it has
// the lock.
//
// A group waits 100 ms for a stock. The calls for one that is still locked then wait in a slow line, whose groups wait
// a second, and so do all calls for the same stock for a second: a stock that is locked long keeps no other call
// waiting for long, and one that is only busy still has its calls made in groups.
//
// A call leaves its group, and is made in a transaction of its own (ErrAlone), where it could keep the others waiting
// or fail them: a cart with many holds or, for a removal, with requests that are not decided; a stock that stays locked
// in the slow line too; data that the database refuses, found by halving the group; an idempotency key that another
// call is using. Calls that work on the same holds are decided in groups one after the other.
package verbs
