// Package unitrows owns the rows of units with their own identity, the table
// postings. Package postings is its public side, and explains their states.
//
// The units of a block that is sold through package inventory are changed by
// the Queue functions only, below the lock of the block's stock. Each of the
// other verbs is one conditional UPDATE, and returns how many rows it changed.
//
// Lock order: the units of one block in the order of their positions. A
// transaction that changes several blocks does so in the order of (tenant,
// block).
package unitrows
