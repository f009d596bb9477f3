// Package replay sends a file of baskets through the HTTP API, waits until
// everything is decided, and checks the outcome of each item against the stock
// that was available and the stock that the API reports afterwards.
//
//	stocks set → every item added to its basket's cart, in order → carts asked until decided → stocks compared
//
// Invariants: an add is sent again only under its own idempotency key, so
// neither a lost answer nor a restarted program duplicates it. An accepted
// request is polled until it is terminal. Nothing waits longer than
// Config.StallAfter without progress.
//
// It uses the HTTP API only, as a shop would, and never the database.
package replay
