package queues

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/internal/lanes"
	"github.com/holdfast/holdfast/internal/requestrows"
	"github.com/holdfast/holdfast/internal/telemetry"
	"github.com/holdfast/holdfast/requests"
)

// traits are all in which the lanes differ, except how they claim (ClaimPolicy).
type traits struct {
	// batch and drains are the defaults of DrainConfig.Batch and
	// LaneConfig.Concurrency.
	batch, drains int
	// shared means that several drains share slot 0, in every process. Otherwise
	// one drain at a time has the lease of a slot, and the slots are divided
	// between the processes (LaneConfig.Parts). extraDrains are the drains for
	// the other slots of a shared lane, beside those that share slot 0.
	shared      bool
	extraDrains int
	// oneVariant means that a slot has requests of one variant only.
	oneVariant bool
	// waits means that a batch waits for the lock of its stock, for a short time
	// and without a permit. Otherwise it leaves out what is locked, and waits
	// only for a stock that it has found locked for long.
	waits bool
	// endsDue means that a batch ends all due holds of its variant. A batch of
	// many variants ends only those whose units it needs: each variant has few,
	// which a sweep ends.
	endsDue bool
	// offers means that the lane offers units to the requests that wait in line,
	// those of all lanes.
	offers bool
}

var traitsOf = map[lanes.Lane]traits{
	lanes.Hot:    {batch: 2000, drains: 4, oneVariant: true, waits: true, endsDue: true},
	lanes.Normal: {batch: 500, drains: 2, shared: true, extraDrains: 1, offers: true},
}

// ClaimPolicy is how the drains of a lane claim.
type ClaimPolicy interface {
	// AcquireTx acquires the lease of a slot. It returns lanes.ErrBusy if
	// another drain has the lease, and pg.ErrIsolation if tx is not READ
	// COMMITTED.
	AcquireTx(ctx context.Context, tx pgx.Tx, stream lanes.Stream) (Lease, error)
	// ClaimTx locks up to limit queued requests, in the order they are to be
	// decided.
	ClaimTx(ctx context.Context, tx pgx.Tx, lease Lease, limit int) (Claim, error)
	// QueueCheckpoint adds to b what the lane records at the end of the drain,
	// besides the low-water mark.
	QueueCheckpoint(b *pgx.Batch, lease Lease)
}

// Lease is the lease of a slot, and what the lane's policy reads with it.
type Lease struct {
	lanes.Lease
	// LowestWater is used in the normal lane: the lowest of the slot's mark and
	// the marks of the lane's other slots that have queued requests. Moving means that variants of the slot are moving between the
	// lanes.
	LowestWater int64
	Moving      bool
	// Skip lists the requests that must not be claimed. If Only is not nil,
	// only its requests are claimed.
	Skip []requestrows.Skip
	Only *inventory.Ref
}

// Claim is a group of requests, locked.
type Claim struct {
	Requests []requests.Request
	// More means that others may be left.
	More bool
	// InOrder means that every visible queued request of the stream up to the
	// last one of Requests is in Requests. It is false if one of Requests is
	// left undecided.
	InOrder bool
}

// finished returns a sequence number at or below which the stream has no
// visible queued request once the claim is decided.
func (c *Claim) finished(lease *Lease) int64 {
	switch {
	case c.InOrder && !c.More:
		return lease.VisibleUpTo()
	case c.InOrder && len(c.Requests) > 0:
		return c.Requests[len(c.Requests)-1].Sequence
	default:
		return lease.LowWater
	}
}

// markSQL moves a mark to $4, or below the first queued request above $3 and
// not above $4. It leaves a mark that another drain is moving.
const markSQL = `
WITH mark AS MATERIALIZED (
    SELECT coalesce(min(unfinished.sequence) - 1, $4) AS low_water
    FROM (SELECT r.sequence
          FROM reservation_requests r
          WHERE r.lane = $1 AND r.slot = $2 AND r.sequence > $3 AND r.sequence <= $4 AND r.status = 'queued'
          ORDER BY r.sequence
          LIMIT 1) unfinished
)` + lanes.AdvanceMark

// queueMark adds to b the statement that moves the low-water mark as far as the
// stream is finished. The batch has finished the claimed requests by then. The
// mark does not pass what was settled before the claim, because a request that
// commits later may have a lower number than the claimed ones.
func queueMark(b *pgx.Batch, lease *Lease, claim *Claim) {
	if settled := lease.VisibleUpTo(); settled > lease.LowWater {
		b.Queue(markSQL, lease.Lane, lease.Slot, min(claim.finished(lease), settled), settled)
	}
}

// reportBehind logs and counts that the sequence of requests was behind the
// slot's mark.
func (d *Drain) reportBehind(ctx context.Context, lease Lease) {
	d.log.ErrorContext(ctx, "the sequence of requests is behind the low-water mark, which was reset to 0: set reservation_requests_sequence_seq, claims are slow until then",
		"slot", lease.Slot, "mark", lease.Behind, "sequence", lease.Drawn)
	telemetry.SequenceBehind(ctx, string(d.lane))
}
