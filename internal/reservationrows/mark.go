package reservationrows

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/horizon"
	"github.com/holdfast/holdfast/internal/pg"
)

// The mark of a kind is a deadline before which no reservation of the kind is
// held. It lets sweeps read each reservation once, although no index says
// which of them have ended.
//
// A hold may become visible after its deadline: its transaction was long, or its
// TTL short. So the mark follows the rule of package horizon. A pass notes the
// clock, and then takes a transaction id. The transactions with lower ids may
// have read the clock earlier; once they have all ended, their holds are
// visible. A transaction with a higher id reads the clock after it has its id
// (EnterSQL), so its deadlines are later than the noted time.
//
// The clock may be set back. A hold with a deadline before the mark then moves
// the mark back (queueLowerMarks), which also withdraws the note. If it is set back
// between a note and the move, by less than the time in between, holds may be
// made that much before the noted time, so the mark stays that much behind.

// lowerMarkSQL moves the marks of the kinds back to a deadline that is earlier,
// and withdraws their notes: no transaction id is that high.
const lowerMarkSQL = `
UPDATE reservation_marks
SET due_from = $2, noted_xid = '18446744073709551615'
WHERE resource_kind = ANY ($1) AND due_from > $2`

// queueLowerMarks adds to b what moves the marks back before the deadlines of
// the reservations. Only after the clock was set back does it change a row.
func queueLowerMarks(b *pgx.Batch, kinds []string, deadlines []time.Time) {
	b.Queue(lowerMarkSQL, slices.Compact(kinds), slices.MinFunc(deadlines, time.Time.Compare))
}

// EnterSQL gives the transaction its id. A transaction that makes a reservation
// and has locked no row runs it before it reads the clock.
const EnterSQL = `SELECT ` + horizon.CurrentXID

const firstNoteSQL = `
INSERT INTO reservation_marks (resource_kind, noted_at, noted_xid)
VALUES ($1, clock_timestamp(), ` + horizon.CurrentXID + `)
ON CONFLICT (resource_kind) DO NOTHING`

// moveMarkSQL moves the mark past reservations that have ended, to the noted
// time or the first that is held, but past $2 of them at most, and notes the
// present time. A note from another cluster, of which the database is a copy, is
// replaced. A note that another transaction replaces meanwhile moves nothing.
const moveMarkSQL = `
WITH noted AS MATERIALIZED (
    SELECT m.due_from, m.noted_xid, clock.now, m.noted_at - (clock.now - m.noted_at) AS until,
           m.noted_xid <= ` + horizon.Xmin + ` AND clock.now >= m.noted_at AS settled,
           m.noted_xid >= ` + horizon.Xmax + ` OR clock.now < m.noted_at AS outdated
    FROM reservation_marks m
    CROSS JOIN (SELECT clock_timestamp() AS now) AS clock
    WHERE m.resource_kind = $1
), reached AS MATERIALIZED (
    SELECT least(
        (SELECT until FROM noted),
        (SELECT r.expires_at
         FROM (SELECT next.expires_at, next.status, next.resource_kind
               FROM reservations next
               WHERE next.quantity >= 1 AND next.expires_at >= (SELECT due_from FROM noted) AND next.expires_at < (SELECT until FROM noted)
               ORDER BY next.expires_at
               LIMIT $2) r
         WHERE r.status = 'held' AND r.resource_kind = $1
         ORDER BY r.expires_at
         LIMIT 1),
        (SELECT next.expires_at
         FROM reservations next
         WHERE next.quantity >= 1 AND next.expires_at >= (SELECT due_from FROM noted) AND next.expires_at < (SELECT until FROM noted)
         ORDER BY next.expires_at
         OFFSET $2
         LIMIT 1)) AS due_from
    WHERE (SELECT settled AND NOT outdated FROM noted)
)
UPDATE reservation_marks m
SET due_from = greatest(m.due_from, (SELECT due_from FROM reached)), noted_at = noted.now, noted_xid = ` + horizon.CurrentXID + `
FROM noted
WHERE m.resource_kind = $1 AND m.noted_xid = noted.noted_xid AND (noted.settled OR noted.outdated)`

// moveMax is past how many reservations one call moves a mark at most.
const moveMax = 100_000

// MoveMark moves the mark of a kind past reservations that have ended, and notes
// the present time for its next move. A sweep calls it before it reads. It waits
// for no lock but that of the mark.
func MoveMark(ctx context.Context, db interface {
	pg.Batcher
	pg.Querier
}, kind string,
) error {
	known, err := pg.Select(ctx, db, pgx.RowTo[bool], `SELECT true FROM reservation_marks WHERE resource_kind = $1`, kind)
	if err == nil && len(known) == 0 {
		b := &pgx.Batch{}
		b.Queue(firstNoteSQL, kind)
		err = db.SendBatch(ctx, b).Close()
	} else if err == nil {
		b := &pgx.Batch{}
		pg.QueueInOrder(b, func() { b.Queue(moveMarkSQL, kind, moveMax) })
		err = db.SendBatch(ctx, b).Close()
	}
	if err != nil {
		return fmt.Errorf("move the mark of %s: %w", kind, err)
	}
	return nil
}
