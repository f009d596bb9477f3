// Package postings owns the units with their own identity: seats, serial
// numbers, codes. A unit belongs to a block, and has one owner at a time.
//
//	         Reserve                    Finalize
//	active ───────────▶ pending_inactive ───────▶ inactive
//	   ▲                      │
//	   └──────────────────────┘
//	            Release
//
// A pending unit is stamped with the reservation that owns it, and only that
// reservation can release or finalize it. The stamp is stored in the row: it
// outlives the transaction and the process, without a lock. An inactive unit
// keeps its stamp, so that a repeated call can tell "finalized by us" from
// "taken by another".
//
// Each verb is one conditional UPDATE, and returns how many rows it changed.
// Its doc comment states what every count means. The units of a block that is
// sold through a holdfast.Client are changed by its verbs only, which keep the
// counters of the block.
//
// Lock order: the units of one block in the order of their positions. A
// transaction that changes several blocks does so in the order of (tenant,
// block).
//
// It depends on pgx and uuid only.
package postings
