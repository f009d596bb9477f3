// Package requests has the words of the status table: what callers asked for,
// from the 202 to the answer.
//
//	queued ──▶ done | failed                  decided in one transaction: by a drain, or by the insert's own
//	queued ──▶ processing ──▶ done | failed   isolated retry, for a row that failed on its own
//	queued ──▶ waiting ──▶ done | failed      in line for units, until they are offered
//
// A request becomes done or failed, once, and that answer never changes.
//
// The package has no statements. A holdfast.Client makes requests, reads them
// and waits for them; package internal/requestrows owns the table.
package requests
