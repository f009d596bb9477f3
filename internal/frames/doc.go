// Package frames carries the frames of live channels between processes, as
// Postgres notifications.
//
// It owns the format of the notification. A notification can be lost, so a
// receiver compares versions and reads the state again after a gap.
package frames
