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
// the mark back (lowerMarkSQL), which also withdraws the note. If the clock is
// set back between a note and the move, holds may be made before the noted time,
// by as much as it was set back. If that is more than the time in between, the
// note is withdrawn. The mark stays as far behind the noted time as the clock
// shows that has passed, which covers up to half the time in between. What is
// left is a hold in a transaction that is still open at the move, by when its
// deadline has passed: no sweep finds it, but a request for its units does.

// lowerMarkSQL moves the marks of the kinds back to a deadline that is earlier,
// and withdraws their notes: no transaction id is that high.
const lowerMarkSQL = `
UPDATE reservation_marks
SET due_from = $2, noted_xid = '18446744073709551615'
WHERE resource_kind = ANY ($1) AND due_from > $2`

// queueLowerMarks adds to b what moves the marks back before the deadlines of
// the reservations. Only after the clock was set back does it change a row.
func queueLowerMarks(b *pgx.Batch, kinds []string, deadlines []time.Time) {
	b.Queue(lowerMarkSQL, slices.Compact(slices.Sorted(slices.Values(kinds))), slices.MinFunc(deadlines, time.Time.Compare))
}

// EnterSQL gives the transaction its id. A transaction that makes a reservation
// and has locked no row runs it before it reads the clock.
const EnterSQL = `SELECT ` + horizon.CurrentXID

const firstNoteSQL = `
INSERT INTO reservation_marks (resource_kind, noted_at, noted_xid)
VALUES ($1, clock_timestamp(), ` + horizon.CurrentXID + `)
ON CONFLICT (resource_kind) DO NOTHING`

// moveMarkSQL moves the mark past reservations that have ended, to the noted
// time or the first that is held, but past $2 of them at most. It then notes the
// present time, unless that bound has ended the move: it returns whether. A note
// from another cluster, of which the database is a copy, is replaced. A note that
// another transaction replaces meanwhile moves nothing.
const moveMarkSQL = `
WITH noted AS MATERIALIZED (
    SELECT m.due_from, m.noted_at, m.noted_xid, clock.now, m.noted_at - (clock.now - m.noted_at) AS until,
           m.noted_xid <= ` + horizon.Xmin + ` AND clock.now >= m.noted_at AS settled,
           m.noted_xid >= ` + horizon.Xmax + ` OR clock.now < m.noted_at AS outdated
    FROM reservation_marks m
    CROSS JOIN (SELECT clock_timestamp() AS now) AS clock
    WHERE m.resource_kind = $1
), held AS MATERIALIZED (
    SELECT (
        SELECT r.expires_at
        FROM (SELECT next.expires_at, next.status, next.resource_kind
              FROM reservations next
              WHERE next.quantity >= 1 AND next.expires_at >= (SELECT due_from FROM noted) AND next.expires_at < (SELECT until FROM noted)
              ORDER BY next.expires_at
              LIMIT $2) r
        WHERE r.status = 'held' AND r.resource_kind = $1
        ORDER BY r.expires_at
        LIMIT 1) AS expires_at
    WHERE (SELECT settled AND NOT outdated FROM noted)
), bound AS MATERIALIZED (
    SELECT next.expires_at
    FROM reservations next
    WHERE next.quantity >= 1 AND next.expires_at >= (SELECT due_from FROM noted) AND next.expires_at < (SELECT until FROM noted)
      AND (SELECT expires_at IS NULL FROM held)
    ORDER BY next.expires_at
    OFFSET $2
    LIMIT 1
)
UPDATE reservation_marks m
SET due_from = CASE WHEN noted.outdated THEN m.due_from
                    ELSE greatest(m.due_from, coalesce((SELECT expires_at FROM held), (SELECT expires_at FROM bound), noted.until)) END,
    noted_at = CASE WHEN EXISTS (SELECT FROM bound) THEN m.noted_at ELSE noted.now END,
    noted_xid = CASE WHEN EXISTS (SELECT FROM bound) THEN m.noted_xid ELSE ` + horizon.CurrentXID + ` END
FROM noted
WHERE m.resource_kind = $1 AND m.noted_xid = noted.noted_xid AND (noted.settled OR noted.outdated)
RETURNING EXISTS (SELECT FROM bound) AND m.due_from > noted.due_from`

// moveMax is past how many reservations one statement moves a mark, and movesMax
// how many statements one call runs.
const moveMax, movesMax = 50_000, 200

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
	}
	for range movesMax {
		if err != nil || len(known) == 0 {
			break
		}
		var more []bool
		more, err = pg.ReadInOrder(ctx, db, pgx.RowTo[bool], moveMarkSQL, kind, moveMax)
		if len(more) == 0 || !more[0] {
			break
		}
	}
	if err != nil && !pg.IsLockTimeout(err) { // else another sweep moves it, and this one begins where the mark was
		return fmt.Errorf("move the mark of %s: %w", kind, err)
	}
	return nil
}
