// Package traffic calls Holdfast as shops and their buyers do, and keeps a record of its own of what it was answered.
//
// The record is what the database is held against afterwards: every acknowledged request with its answer, every verb that
// took effect and every one that did not, the deadlines that were promised, and how long the answers took. Calls whose
// outcome is open are repeated under their idempotency key until it is known, at whichever API answers.
package traffic
