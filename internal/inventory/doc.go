// Package inventory owns the stocks: how many units of a variant there are, how
// many are reserved, and every change to either. Its holds are rows of the
// reservations table with resource kind [Kind].
//
// It never queues, never calls a lane and never publishes: it records every
// change with package audit in the same transaction. It stores the lane that a
// caller wishes for a variant, and does not decide which lane the variant is
// in.
//
// Invariants, each a named CHECK and a condition of every write:
//
//   - 0 ≤ reserved.
//   - reserved ≤ stock, unless the variant allows backorder or is not tracked.
//
// Stock is set between 0 and [MaxStock]; only the checkout of a backordered
// variant takes it below 0.
//
// Locks: every verb that changes a stock locks its row first, in (tenant,
// variant) order by the column's collation, and the reservations after it.
// Decisions and sweeps do not wait for a reservation: they leave those that
// another transaction has locked.
//
// Each verb that joins the caller's transaction documents the isolation levels
// at which it is correct. Above READ COMMITTED Postgres may require the
// transaction to be repeated (SQLSTATE 40001). After an error from the database
// the caller must roll back.
package inventory
