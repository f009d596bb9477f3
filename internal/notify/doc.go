// Package notify receives Postgres notifications, and connects again after it
// has lost the connection.
package notify
