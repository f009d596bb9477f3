// Package finding collects the violations in a storm, by the rule that was
// broken.
package finding
