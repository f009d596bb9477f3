package queues

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/inventory"
)

// takeTokensSQL gives no tokens for a time that lies in the future, where a clock that was set back leaves the last refill,
// and refills from the present time on.
const takeTokensSQL = `
WITH bucket AS MATERIALIZED (
    SELECT lane, slot,
           greatest(0, least(rate_cap, tokens + rate_cap * greatest(0, extract(epoch FROM clock_timestamp() - refilled_at)))) AS tokens
    FROM lane_slots
    WHERE lane = $1 AND slot = -1 AND rate_cap IS NOT NULL
    FOR NO KEY UPDATE
)
UPDATE lane_slots s
SET tokens = bucket.tokens - least(floor(bucket.tokens), $2), refilled_at = clock_timestamp()
FROM bucket
WHERE s.lane = bucket.lane AND s.slot = bucket.slot
RETURNING least(floor(bucket.tokens), $2)::integer`

// errCapped means that the lane has a rate cap, which has not granted what was to be drained.
var errCapped = errors.New("queues: the lane has a rate cap")

// withinCap drains a slot within the lane's rate cap: it takes up to limit requests' worth from the lane's bucket, which
// fills at the cap and holds one second of it, and gives back what the drain did not use. Both are transactions of their
// own, so that no drain waits for another one that waits for a lock.
func (d *Drain) withinCap(ctx context.Context, slot int16, limit int, skip []inventory.Ref) (report Report, err error) {
	granted, capped := limit, false // if the cap was taken away just now
	taking, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	b := &pgx.Batch{}
	b.Queue(hintSQL)
	b.Queue(takeTokensSQL, d.lane, limit).Query(func(rows pgx.Rows) error {
		_, err := pgx.ForEachRow(rows, []any{&granted}, func() error { capped = true; return nil })
		return err
	})
	if err := d.db.SendBatch(taking, b).Close(); err != nil {
		return Report{}, fmt.Errorf("take from the rate cap of lane %s: %w", d.lane, err)
	}
	if granted = min(granted, limit); granted <= 0 {
		return Report{Throttled: true}, nil
	}
	report, err = d.drainUpTo(ctx, slot, granted, capped, skip)
	if errors.Is(err, errCapped) { // there is a cap again
		return Report{More: true}, nil
	}
	report.Throttled = report.More && granted < limit
	if capped {
		d.giveBackTokens(ctx, granted-report.Claimed)
	}
	return report, err
}

const unspentSQL = `UPDATE lane_slots SET tokens = tokens + $2 WHERE lane = $1 AND slot = -1 AND rate_cap IS NOT NULL`

func (d *Drain) giveBackTokens(ctx context.Context, n int) {
	if n <= 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), giveBackTimeout)
	defer cancel()
	b := &pgx.Batch{}
	b.Queue(hintSQL)
	b.Queue(unspentSQL, d.lane, n)
	if err := d.db.SendBatch(ctx, b).Close(); err != nil {
		d.log.WarnContext(ctx, "what a drain did not use of the rate cap was not given back", "requests", n, "error", err)
	}
}
