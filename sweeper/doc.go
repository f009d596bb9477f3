// Package sweeper runs the bounded passes of maintenance: it expires holds past
// their deadline, and purges what is finished and old.
//
// RunOnce and PurgeOnce are the units. The worker's jobs, the all-in-one's ticker
// and the one-shot program call the same functions, which are correct when they
// are called late, twice or several times at once. The package has no SQL. No
// promise depends on a sweep: a hold past its deadline never blocks a new buyer,
// swept or not.
package sweeper
