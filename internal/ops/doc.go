// Package ops has the reads of an operator: the overview, which the dashboard
// shows and the channel ops.overview sends, and the histories of a cart, a
// variant, a reservation or a unit.
//
// It writes nothing. The overview runs once per second while an operator
// watches, so each of its reads is bounded. They combine what other packages
// read with SQL that only an operator needs.
package ops
