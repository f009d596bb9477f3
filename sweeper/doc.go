// Package sweeper runs the bounded passes of maintenance: expiring holds past their deadline, and purging what is
// finished and old.
//
// RunOnce is the unit. The worker's schedule, the all-in-one's ticker and the one-shot program call the same function,
// which stays right when it is called late, twice or at once. It has no SQL of its own, and nothing depends on it for
// being correct: a hold past its deadline never blocks a new buyer, swept or not.
package sweeper
