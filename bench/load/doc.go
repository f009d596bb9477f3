// Package load makes HTTP calls as fast, or as often, as asked, and cheaply: it shares its cores with what it measures.
//
// [Closed] has a fixed number of callers, each of whom sends the next call when the last one is answered. [Open] sends
// at a fixed rate whatever the answers do, and counts latency from when a call was due, so that a server that stalls
// can't slow down the clock. Both add to carts. [Sessions] is a closed load in which each caller has a session of its
// own, that decides which call comes next by what the last one was answered. Each connection sends one call at a time.
package load
