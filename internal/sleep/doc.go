// Package sleep waits for a duration or for the end of a context.
package sleep
