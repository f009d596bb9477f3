package lanes

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/pg"
)

// The actions of moves, as the audit record has them.
const (
	Promoted = "lane.promoted"
	Demoted  = "lane.demoted"
	Diverted = "lane.diverted"
	Restored = "lane.restored"
)

// Move is an automatic move of a variant, or of all other requests of a tenant
// if VariantID is empty.
type Move struct {
	TenantID  uuid.UUID
	VariantID string
	Action    string
	// Slot is the slot of the hot lane or, for a tenant, of the normal lane.
	Slot int16
	Why  string
}

// NoSlot is the slot of a variant that has none yet.
const NoSlot int16 = -1

// promoteSQL promotes a variant from the slot in which the detector read it, or
// a variant without a slot. It leaves a variant that another transaction has
// moved to a slot that is not locked.
const promoteSQL = `
INSERT INTO hot_variants AS h (tenant_id, variant_id, slot, why)
VALUES ($1, $2, $3, $4)
ON CONFLICT (tenant_id, variant_id) DO UPDATE
SET state = 'entering', pinned = false, why = excluded.why, admitted_before = NULL, moved_at = clock_timestamp()
WHERE h.state = 'leaving' AND h.slot = excluded.slot`

const demoteSQL = `
UPDATE hot_variants h
SET state = 'leaving', why = $4, admitted_before = NULL, moved_at = clock_timestamp()
WHERE h.tenant_id = $1 AND h.variant_id = $2 AND h.slot = $3 AND h.state <> 'leaving' AND NOT h.pinned`

const divertSQL = `
INSERT INTO diverted_tenants (tenant_id, slot, why)
SELECT $1, $2, $3
FROM lane_slots s
WHERE s.lane = 'normal' AND s.slot = $2
ON CONFLICT (tenant_id) DO NOTHING`

// Restore is a SQL statement that ends the diversion d of the tenant $1. A
// condition on d may follow.
const Restore = `
DELETE FROM diverted_tenants d
WHERE d.tenant_id = $1`

// Queue adds the move's statement to b. The statement affects no row if the
// move is no longer valid. PrepareMovesTx comes before it.
func (m *Move) Queue(b *pgx.Batch) *pgx.QueuedQuery {
	switch m.Action {
	case Promoted:
		return b.Queue(promoteSQL, m.TenantID, m.VariantID, m.Slot, m.Why)
	case Demoted:
		return b.Queue(demoteSQL, m.TenantID, m.VariantID, m.Slot, m.Why)
	case Diverted:
		return b.Queue(divertSQL, m.TenantID, m.Slot, m.Why)
	default:
		return b.Queue(Restore, m.TenantID)
	}
}

// RecordTx records the moves that were made, and wakes the streams to which
// they give work. It may be called at every isolation level.
func RecordTx(ctx context.Context, tx pgx.Tx, waker Waker, moves []Move, origin audit.Origin) error {
	var entries []audit.Entry
	var streams []Stream
	for i := range moves {
		entries = append(entries, moves[i].entry(origin))
		streams = append(streams, moves[i].streams()...)
	}
	if err := audit.WriteTx(ctx, tx, entries); err != nil {
		return err
	}
	return wakeTx(ctx, tx, waker, streams)
}

// location is the stream that requests go to, as the audit record has it.
type location struct {
	Lane Lane  `json:"lane"`
	Slot int16 `json:"slot"`
}

// VariantTarget is the target of the audit rows of a variant's lane.
func VariantTarget(tenantID uuid.UUID, variantID string) uuid.UUID {
	return audit.TargetOf(tenantID, "lane", variantID)
}

// entry returns the move's audit row. Its target is the lane of a variant, or
// of a tenant's other requests if the key is empty.
func (m *Move) entry(origin audit.Origin) audit.Entry {
	before, after := location{Lane: Normal}, location{Lane: Normal, Slot: m.Slot}
	if m.VariantID != "" {
		after.Lane = Hot
	}
	if m.Action == Demoted || m.Action == Restored {
		before, after = after, before
	}
	origin.Reason = m.Why
	return audit.Entry{
		TenantID: m.TenantID, TargetID: VariantTarget(m.TenantID, m.VariantID), Action: m.Action, Origin: origin,
		Before: encode(before), After: encode(after),
	}
}

// encode returns the JSON of a location or of controls.
func encode(state any) json.RawMessage {
	text, err := json.Marshal(state)
	if err != nil { // both have texts, numbers and truth values only
		panic(err)
	}
	return text
}

// streams returns the streams to which the move gives work.
func (m *Move) streams() []Stream {
	switch m.Action {
	case Promoted:
		return []Stream{{Lane: Hot, Slot: m.Slot}}
	case Demoted:
		return []Stream{{Lane: Hot, Slot: m.Slot}, {Lane: Normal}}
	default:
		return nil
	}
}

// A pass of the detector waits slotWait for the drain that owns a slot. If a
// drain does not end in that time, the pass waits only shortSlotWait for each
// further slot, because it keeps the slots that it has locked from their
// drains.
const (
	slotWait      = 250 * time.Millisecond
	shortSlotWait = 20 * time.Millisecond
)

const lockSlotSQL = `SELECT slot FROM lane_slots WHERE lane = 'hot' AND slot = $1 FOR NO KEY UPDATE`

const (
	lockTimeoutSQL    = `SELECT current_setting('lock_timeout')`
	setLockTimeoutSQL = `SELECT set_config('lock_timeout', $1, true)`
)

// PrepareMovesTx locks the slots of the variants that have one, in order, and
// then gives a slot to each of the others (NoSlot). It returns the moves whose
// slots it locked; the others are left to a later pass.
//
// The transaction must be READ COMMITTED: the moves' statements leave a variant
// that another transaction has moved since it was read.
func PrepareMovesTx(ctx context.Context, tx pgx.Tx, moves []Move) (ready []Move, err error) {
	var slots, missed []int16
	for _, m := range moves {
		if m.VariantID != "" && m.Slot != NoSlot {
			slots = append(slots, m.Slot)
		}
	}
	slices.Sort(slots)
	wait := slotWait
	for _, slot := range slices.Compact(slots) {
		got, err := lockWithinTx(ctx, tx, slot, wait)
		if err != nil {
			return nil, fmt.Errorf("lock slot %d: %w", slot, err)
		}
		if !got {
			missed, wait = append(missed, slot), shortSlotWait
		}
	}
	moves = slices.DeleteFunc(moves, func(m Move) bool { return m.VariantID != "" && slices.Contains(missed, m.Slot) })
	var given []int16
	for _, m := range moves {
		if m.Slot == NoSlot {
			var free bool
			high, low := variantLock(m.TenantID, m.VariantID)
			if err := tx.QueryRow(ctx, tryVariantSQL, high, low).Scan(&free); err != nil {
				return nil, fmt.Errorf("lock variant %s: %w", m.VariantID, err)
			}
			if !free { // another transaction moves it
				continue
			}
			m.Slot, err = newSlotTx(ctx, tx, given)
			if err != nil {
				return nil, fmt.Errorf("find a slot: %w", err)
			}
			given = append(given, m.Slot)
		}
		ready = append(ready, m)
	}
	return ready, nil
}

// lockWithinTx locks a slot, or reports false if the lock is not granted in
// time. It restores the transaction's lock_timeout.
func lockWithinTx(ctx context.Context, tx pgx.Tx, slot int16, wait time.Duration) (got bool, err error) {
	err = pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
		var lockTimeout string
		if err := tx.QueryRow(ctx, lockTimeoutSQL).Scan(&lockTimeout); err != nil {
			return err
		}
		b := &pgx.Batch{}
		b.Queue(setLockTimeoutSQL, fmt.Sprint(wait.Milliseconds()))
		b.Queue(lockSlotSQL, slot)
		b.Queue(setLockTimeoutSQL, lockTimeout)
		return tx.SendBatch(ctx, b).Close()
	})
	if pg.IsLockTimeout(err) {
		return false, nil
	}
	return err == nil, err
}

const movingSQL = `SELECT EXISTS (SELECT FROM hot_variants WHERE slot = $1 AND state <> 'hot')`

// QueueMoving adds to b the query whether variants of a hot slot are moving
// between the lanes.
func QueueMoving(b *pgx.Batch, slot int16, moving *bool) {
	b.Queue(movingSQL, slot).QueryRow(func(row pgx.Row) error { return row.Scan(moving) })
}

// openSQL records the last number drawn for moves that have none recorded, or a
// number that the sequence is behind. Every admission that routed by the old
// rule began before, so its key among the admissions under way is not above
// that number.
const openSQL = `
UPDATE hot_variants
SET admitted_before = (` + DrawnSQL + `)
WHERE slot = $1 AND state <> 'hot' AND (admitted_before IS NULL OR admitted_before > $2)`

// QueueOpen adds to b the statement that records the last number drawn for the
// moves of a hot slot that begin.
func QueueOpen(b *pgx.Batch, lease Lease) {
	b.Queue(openSQL, lease.Slot, lease.Drawn)
}

// earlierAdmissionsEnded compares with $2, the lowest key of the admissions
// under way. That key is read once the slot is locked: an earlier reading may
// be older than admitted_before.
const earlierAdmissionsEnded = `h.admitted_before IS NOT NULL AND ($2::bigint IS NULL OR h.admitted_before < $2)`

// Entered and Left are the ends of SQL statements that end the moves of the
// slot $1 for which every admission by the old rule has ended. $2 is the lowest
// key of the admissions under way. Their CTE waiting (tenant_id, variant_id)
// has the variants with queued requests in the stream that they come from.
const (
	Entered = `
UPDATE hot_variants h
SET state = 'hot', admitted_before = NULL
WHERE h.slot = $1 AND h.state = 'entering' AND ` + earlierAdmissionsEnded + noneQueued
	Left = `
DELETE FROM hot_variants h
WHERE h.slot = $1 AND h.state = 'leaving' AND ` + earlierAdmissionsEnded + noneQueued

	noneQueued = `
  AND NOT EXISTS (SELECT FROM waiting w WHERE w.tenant_id = h.tenant_id AND w.variant_id = h.variant_id)`
)
