// Package live sends the frames of channels to clients while they happen: over
// a WebSocket, and in process to other handlers of the API.
//
// A channel belongs to a tenant. It is a projection's key
// (projection.<name>.<key>), whose frames arrive as Postgres notifications from
// the process that folds the events, or it is sampled: a function is called
// every second while the channel has a subscriber. Each process has one
// Hub, and each process delivers every frame to its own subscribers.
//
// The package owns the table live_tickets. It never folds events and writes no
// state of a projection.
//
// Invariants:
//
//   - A subscriber first receives a snapshot, then frames whose versions follow
//     it without a gap. After a gap it receives another snapshot.
//   - Delivery never waits for a subscriber. One that reads too slowly loses
//     its buffer, and receives a snapshot when it reads again.
//   - No answer depends on a notification. The versions of all channels with
//     subscribers are compared every second with those in the database.
//   - A subscriber receives frames of its own tenant only, and of channels that
//     its key gives access to.
//   - A ticket opens one connection, within a minute. Only its hash is stored.
//   - Connections, subscriptions, channels, buffers and times are bounded.
package live
