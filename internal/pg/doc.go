// Package pg returns the results of a batch's statements as values.
package pg
