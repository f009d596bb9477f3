// Package traffic calls Holdfast as shops and their buyers do, and keeps a
// separate record of the answers.
//
// Afterwards the record is compared with the database: every acknowledged
// request with its answer, every verb with its effect or without one, and the
// promised deadlines. The latencies are compared with their limits. A call with
// an unknown outcome is repeated under its idempotency key, at any API that
// answers, until the outcome is known. [Findings] has the violations, by the
// rule that was broken.
package traffic
