// Package sweeper runs the bounded passes of maintenance: it expires holds past
// their deadline, and purges what is finished and old.
//
// RunOnce is the unit. [Passes] is a table of them with their schedules. The
// worker's jobs, the all-in-one's ticker and the one-shot program call the same
// function, which is correct when it is called
// late, twice or several times at once. The package has no SQL. No promise
// depends on a sweep: a hold past its deadline never blocks a new buyer, swept
// or not.
package sweeper
