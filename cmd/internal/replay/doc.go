// Package replay sends a file of baskets through the HTTP API, waits until everything is decided, and checks the outcome
// item by item against what the stocks allow and what the API says of them afterwards.
//
//	stocks set → every item added to its basket's cart, in order → carts asked until decided → stocks compared
//
// Invariants: an add is sent again only under its own idempotency key, so neither a lost answer nor a restarted program
// makes two of it; what was accepted is asked for until it is terminal; nothing waits longer than Config.StallAfter
// without progress.
//
// It uses the HTTP API only, as a shop would, and never the database.
package replay
