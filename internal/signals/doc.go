// Package signals counts the requests that each process admits, by variant and
// by tenant, and writes the most frequent to the table hot_signals.
//
// The detector of hot variants (package queues/hot) and the operator's page add
// up the signals of all processes. No promise depends on them: a signal that is
// lost is replaced a second later.
package signals
