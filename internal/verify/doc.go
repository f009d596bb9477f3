// Package verify checks, in SQL and from outside, what the packages that write the tables promise. Each check has a name,
// a meaning in one sentence, and a statement that finds the rows which break it.
//
// All checks of one run see one snapshot, in a transaction that only reads, so it can run while the service works, and
// it takes no lock. It never repairs anything. While it runs, vacuum keeps what its snapshot sees.
//
// It knows the tables only: nothing here calls the code it checks.
//
// # What may be missing
//
// Finished requests, ended reservations and audit rows are pruned by age. What ended longer ago than [Config.Retention]
// is not asked for its counterparts; everything younger is. The margin for times that one transaction reads one after the
// other is a minute, longer than any transaction of ours may last.
//
// # A clock that is set back
//
// A failover to another host, or a step of NTP, can set the database's clock back. So order is judged by what the clock
// has no part in: the requests' sequence, and the audit ids, which are drawn under the locks. Times that run backwards
// while the record is in order break nothing; [Report.Notes] names them, and where in the record the clock was set back.
//
// # What is not checked
//
// That a request was right to be told out_of_stock, and the order of decisions closer together than a minute: the rows
// do not say when units came back in between, nor when an admission was committed. Nor is that order checked until a
// clock that was set back has caught up. max_per_cart may have been changed
// since. The lifetime cap is checked only where the caller says what it is.
package verify
