// Package ready has the projections that every worker runs: transitions per
// resource kind, availability per variant, outcomes per second and their
// latency.
//
// They are pure folds of the audit log. Availability can also be read from the
// stocks, under their locks: [Set.SeedMissing] does so for stocks whose record
// was pruned, and [Set.Verify] compares the two.
package ready
