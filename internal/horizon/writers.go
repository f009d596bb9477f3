package horizon

// Each writer of a row that readers wait for takes a shared advisory lock
// (EnterSequence) and keeps it until its transaction ends. A row that is never
// waited for, such as a request that is inserted as decided, needs none. The key of the lock is the last number
// drawn before. So the existing locks are those of the running writers, and
// each of these draws numbers above its key only.
//
// A reader reads the last number drawn, and then the lowest key (LowestWriter).
// Every number at or below both was drawn by a writer that has ended, or by none
// that took the lock. A
// writer that the reader did not see took its lock later, and draws higher
// numbers. A statement that begins after that sees the rows of the writers that
// committed.
//
// Only writers of this sequence hold the reader back, not other transactions of
// the server. A prepared transaction keeps its lock until it ends. The keys of
// one sequence share a prefix of 15 bits made from its oid, so that schemas of
// one database do not hold each other back. The lower 48 bits of the number
// follow; the reader completes them from the last number drawn, from which a
// running writer is less than 2^47 numbers away.

// EnterSequence is the select list of a statement that reads from the sequence
// itself. It comes before the statement that draws a number.
const EnterSequence = `pg_advisory_xact_lock_shared(((tableoid::bigint & 32767) << 48) + (` + Drawn + ` & ` + lower48 + `))`

const lower48 = `((1::bigint << 48) - 1)`

// Drawn is the last number drawn, 0 for none, in a statement that reads from
// the sequence itself. Every number drawn later is higher.
//
// The column last_value of the sequence does not guarantee that. One nextval in
// 32 logs the sequence 32 numbers ahead. While it makes the log record, the row
// contains the number ahead, and the page is locked exclusively. A SELECT reads
// the row without that lock, and may see a number that is drawn later. This
// function takes the lock.
const Drawn = `coalesce(pg_sequence_last_value(tableoid::regclass), 0)`

// LowestWriter is a SQL expression of type bigint in a statement that reads
// from the sequence itself: the lowest key of a running writer, NULL without
// one.
const LowestWriter = `(
    SELECT min(drawn.last + ((held.key - drawn.last + (1::bigint << 47)) & ` + lower48 + `) - (1::bigint << 47))
    FROM (SELECT ` + Drawn + ` AS last) drawn
    CROSS JOIN (SELECT classid::bigint << 32 | objid::bigint AS key
          FROM pg_locks
          WHERE locktype = 'advisory' AND objsubid = 1
            AND database = (SELECT oid FROM pg_database WHERE datname = current_database())) held
    WHERE held.key >> 48 = tableoid::bigint & 32767)`
