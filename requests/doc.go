// Package requests owns the status table: what callers asked for, from the 202
// to the answer.
//
//	queued ──▶ done | failed                  decided in one transaction: by a drain, or by the insert's own
//	queued ──▶ processing ──▶ done | failed   isolated retry, for a row that failed on its own
//
// An [Insertion] inserts a group of submissions. After the commit, a request
// becomes done or failed, once, and that answer never changes. Each (tenant,
// idempotency key) has one effect.
//
// The drain of package queues claims rows here. A claim locks rows and does not
// mark them. Rows are claimed in the order of the table's sequence. The lane
// and the slot of a row are a hint from its admission.
//
// The package does not decide requests, and it never counts stock.
package requests
