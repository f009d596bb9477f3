// Package unnest prepares the arrays that a statement reads as columns with
// unnest.
package unnest
