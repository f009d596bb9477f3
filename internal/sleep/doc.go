// Package sleep waits for durations, or for the end of a context.
package sleep
