// Package requestrows owns the status table: it writes and reads the rows of
// package requests, and lets callers wait for them.
//
// An [Insertion] inserts a group of submissions as queued. A [Direct] inserts it
// as it was decided before. A request becomes done or failed once, and that
// answer never changes. Each (tenant, idempotency key) has one effect.
//
// The drain of package queues claims rows here. A claim locks rows and does not
// mark them. Rows are claimed in the order of the table's sequence. The lane
// and the slot of a row are a hint from its admission.
//
// The package does not decide requests, and it never counts stock.
package requestrows
