// Package wiring joins the parts of Holdfast in a process: an [Acceptor]
// accepts requests, and a [Worker] decides them and keeps the house. The
// library's client is both over one pool. The programs are one or both of them,
// over a pool for each use.
//
// It owns no table and has no SQL, reads no environment, and opens and closes
// no pool. [Passes] is the table of what maintenance does and when. The work of
// the passes is done here once, for the worker's ticker, River's periodic jobs
// and the one-shot program.
package wiring
