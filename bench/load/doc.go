// Package load makes HTTP calls as fast, or as often, as requested, at a low
// cost: it shares its cores with what it measures.
//
// [Closed] has a fixed number of callers. Each sends the next call when the
// last one is answered. [Open] sends at a fixed rate, whatever the answers are,
// and counts latency from when a call was due, so that a server that stalls
// cannot slow the clock. Both add to carts. [Sessions] is a closed load in
// which each caller has a session that chooses the next call from the last
// answer. Each connection sends one call at a time.
package load
