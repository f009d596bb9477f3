// Package unnest makes the columns that a statement reads with unnest.
package unnest
