// Package carts makes the synchronous calls of carts and of single holds:
// checkout, remove, release, commit and extend. [ApplyTx] makes one in a
// transaction of the caller, and [Groups] commits those of many callers
// together.
//
// A group is one transaction of four round trips, or five if its calls are for
// several variants. It reads the holds of the calls, locks their stocks in
// (tenant, variant) order and then the holds, decides each call individually
// under the locks (inventory.GroupCommit), and writes the endings, the
// counters, the audit rows and the answers that are stored under idempotency
// keys. While one group commits, the next one gathers. A lone call is a group
// of one.
//
// A group waits for a stock only while it has no other stock locked. A group of
// several variants defers the calls whose stock another transaction has locked
// to transactions that follow at once, one per such stock. On a hot variant a
// group waits for the stock as the drain of the variant's slot and direct
// decisions do, and each of them handles all waiting calls or requests once it
// has the lock.
//
// A group waits 100 ms for a stock. If the stock is still locked, its calls go
// to the contended queue, whose groups wait 1 s, and so do all calls for the
// same stock during the next second. It does not wait for a hold, because it
// has locked the hold's stock: the call goes to the contended queue. So a stock
// that is locked for long delays no other call for long, and the calls for a
// stock that is only busy are still made in groups.
//
// A call leaves its group (ErrNotGrouped), and its caller makes it in a
// separate transaction, if it could delay the others or make them fail: a cart
// with many holds; the removal from a cart with undecided requests; a stock or
// a hold that stays locked in the contended queue too; data that the database
// refuses, found by bisection of the group; an idempotency key that another
// call is using. Calls that work on the same holds are decided in consecutive groups.
package carts
