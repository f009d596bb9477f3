// Package hot is the lane of contended variants: strictly first come, first
// served within a variant.
//
// Each hot variant has its own slot. A drain locks the slot's row, so one
// transaction at a time drains its stream. It claims the oldest requests first
// and waits for rows that another transaction has locked. A request that is
// decided as it is admitted (queues.Direct) comes after all requests that were
// queued before it was sent.
//
// While a variant moves between the lanes (package lanes), its slot decides its
// requests from both streams in one order. So a move loses and reorders
// nothing.
//
// An operator moves a variant by a pin. The detector moves variants
// automatically. Each API process counts the requests that arrive and writes the
// counts to the database (package signals). One Detector at a time adds them up,
// with the requests that wait and those that were rejected as out of stock. It
// decides within bounds and with hysteresis, and moves and records in one
// transaction.
//
// The detector also diverts tenants that keep their neighbours in the normal
// lane waiting. Pins take precedence over the detector. While it does not run,
// nothing is moved and nothing else is lost.
package hot
