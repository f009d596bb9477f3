// Package notify receives Postgres notifications, and connects again when the connection is lost.
package notify
