package lanes

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/pg"
)

// Lane is the name of a lane, and of its River queue.
type Lane string

// The lanes.
const (
	Hot    Lane = "hot"
	Normal Lane = "normal"
)

// All returns the lanes.
func All() []Lane { return []Lane{Hot, Normal} }

// Stream is an ordered sequence of requests: one slot of a lane. The zero slot
// of the normal lane is the stream of all tenants that are not diverted.
type Stream struct {
	Lane Lane
	Slot int16
}

// DivertedSlot is the slot of the normal lane that takes the requests of
// diverted tenants.
const DivertedSlot int16 = 1

// Wish is the lane that a stock requests, or WishAuto.
type Wish string

// The wishes. WishAuto leaves the choice to the detector.
const (
	WishAuto   Wish = "auto"
	WishHot         = Wish(Hot)
	WishNormal      = Wish(Normal)
)

// Wishes returns all wishes.
func Wishes() []Wish { return []Wish{WishAuto, WishHot, WishNormal} }

// Either returns two or more lanes or wishes as a list for messages: "auto, hot
// or normal".
func Either[S ~string](names []S) string {
	list := make([]string, len(names))
	for i, name := range names {
		list[i] = string(name)
	}
	last := len(list) - 1
	return strings.Join(list[:last], ", ") + " or " + list[last]
}

// Waker inserts wakes.
type Waker interface {
	// InsertTx inserts one wake per stream, in the transaction that gives the
	// stream work.
	InsertTx(ctx context.Context, tx pgx.Tx, streams []Stream) error
}

// ErrIsolation means that a verb was called in a transaction at REPEATABLE READ
// or SERIALIZABLE, whose snapshot may be older than a move between the lanes.
// Postgres has aborted the transaction.
var ErrIsolation = pg.ErrIsolation

// Slots is a SQL table expression with one row per slot of each lane: lane,
// slot, low_water.
const Slots = `(SELECT lane, slot, low_water FROM lane_slots WHERE slot >= 0)`

// ParallelSlots is Slots for the lanes whose slots several drains share: all but
// the hot one. It names the lanes, so that the planner reads their slots by the key: the hot lane may
// have thousands.
const ParallelSlots = `(SELECT lane, slot, low_water FROM lane_slots WHERE slot >= 0 AND lane IN ('normal'))`

const streamsSQL = `SELECT lane, slot FROM ` + Slots + ` slots ORDER BY lane, slot`

// Streams returns every slot of each lane.
func Streams(ctx context.Context, db audit.Querier) ([]Stream, error) {
	rows, err := db.Query(ctx, streamsSQL)
	if err != nil {
		return nil, fmt.Errorf("read the streams: %w", err)
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[Stream])
}

// lockMakingSQL lets one transaction make slots at a time.
const lockMakingSQL = `SELECT pg_advisory_xact_lock('lane_slots'::regclass::oid::integer, 0)`

// makeSlotSQL makes one more slot. It returns no row if the lane has as many as
// it can have.
const makeSlotSQL = `
INSERT INTO lane_slots (lane, slot)
SELECT $1, max(slot) + 1
FROM lane_slots
WHERE lane = $1
HAVING max(slot) < 32767
RETURNING slot`

// ErrSlots means that a lane has as many slots as it can have, 32,768.
var ErrSlots = errors.New("lanes: the lane has as many slots as it can have")

// makeSlotTx makes one more slot of a lane. Another transaction that makes
// slots waits until this one ends.
func makeSlotTx(ctx context.Context, tx pgx.Tx, lane Lane) (slot int16, err error) {
	if _, err := tx.Exec(ctx, lockMakingSQL); err != nil {
		return 0, fmt.Errorf("make a slot of lane %s: %w", lane, err)
	}
	err = tx.QueryRow(ctx, makeSlotSQL, lane).Scan(&slot)
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, ErrSlots
	}
	if err != nil {
		return 0, fmt.Errorf("make a slot of lane %s: %w", lane, err)
	}
	return slot, nil
}
