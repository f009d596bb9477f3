package horizon

// Every writer of a sequence takes a shared advisory lock whose key is the last number drawn before its own
// (EnterSequence), and keeps it to the end of its transaction. The locks that exist are the writers under way: each of
// them draws numbers above its key only.
//
// A reader that reads the last number drawn, and after that the lowest key (LowestWriter), knows: every number at or below
// both was drawn by a transaction that has ended. A writer that the reader did not see took its lock later, and draws
// higher numbers. A statement that begins after that sees the rows of those that committed.
//
// Only writers of this sequence hold the reader back, not other transactions of the server. A prepared transaction keeps
// its lock until it ends. The keys of one sequence share a prefix of 15 bits made from its oid, so that several schemas of
// a database do not hold each other back; 48 bits are left for the number.

// EnterSequence is the select list of a statement that reads from the sequence itself. It comes before the statement that
// draws a number.
const EnterSequence = `pg_advisory_xact_lock_shared(((tableoid::bigint & 32767) << 48) + ` + Drawn + `)`

// Drawn is the last number drawn, 0 for none, in a statement that reads from the sequence itself: every number drawn later
// is higher.
//
// The sequence's column last_value does not say that. One nextval in 32 logs the sequence 32 numbers ahead, and for that
// it writes the number ahead into the row until the log record is made. It has the page locked exclusively meanwhile, but a
// SELECT reads the row without that lock, and sees a number that others draw later. This function takes the lock.
const Drawn = `coalesce(pg_sequence_last_value(tableoid::regclass), 0)`

// LowestWriter is a SQL expression of type bigint in a statement that reads from the sequence itself: the key of the writer
// under way that has the lowest one, NULL if there is none.
const LowestWriter = `(
    SELECT min(held.key & ((1::bigint << 48) - 1))
    FROM (SELECT classid::bigint << 32 | objid::bigint AS key
          FROM pg_locks
          WHERE locktype = 'advisory' AND objsubid = 1
            AND database = (SELECT oid FROM pg_database WHERE datname = current_database())) held
    WHERE held.key >> 48 = tableoid::bigint & 32767)`
