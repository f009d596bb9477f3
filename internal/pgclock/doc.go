// Package pgclock reads the database's clock.
package pgclock
