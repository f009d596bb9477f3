// Package purge deletes old rows ([Old]) and idle rows ([Idle]) in bounded
// batches.
//
// Old is for tables with an index on the age of a row. Idle walks through a
// table by its key. It is for tables without an index on the time by which a
// row becomes idle, because such an index would cost every write. A [Walk]
// remembers how far such walks have come.
package purge
