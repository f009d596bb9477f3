package baselines

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Fill makes the holds, one transaction per group, as the micro-batcher writes
// them. It makes the holds that callers have before they are measured.
func Fill(ctx context.Context, db *pgxpool.Pool, requests []Request) error {
	batcher := MicroBatch{db: db}
	for len(requests) > 0 {
		n := min(len(requests), groupMax)
		group := make([]*waiting, n)
		for i := range group {
			group[i] = &waiting{request: requests[i]}
		}
		if err := batcher.write(ctx, group); err != nil {
			return fmt.Errorf("fill in %d holds: %w", n, err)
		}
		requests = requests[n:]
	}
	return nil
}

const countSold = `
WITH audit AS MATERIALIZED (
    SELECT count(*) FILTER (WHERE action = 'hold.held') AS held, count(*) FILTER (WHERE action = 'hold.changed') AS changed,
           count(*) FILTER (WHERE action = 'hold.committed') AS committed,
           count(*) FILTER (WHERE action = 'hold.released') AS released,
           count(*) FILTER (WHERE action = 'hold.expired') AS expired
    FROM baseline.audit
), hold AS MATERIALIZED (
    SELECT count(*) AS held, count(*) FILTER (WHERE status = 'committed') AS committed,
           count(*) FILTER (WHERE status = 'released') AS released, count(*) FILTER (WHERE status = 'expired') AS expired,
           coalesce(sum(quantity) FILTER (WHERE status = 'held'), 0)::bigint AS units,
           coalesce(sum(quantity) FILTER (WHERE status = 'committed'), 0)::bigint AS sold
    FROM baseline.holds
)
SELECT audit.held + audit.changed, audit.committed, audit.released, audit.expired,
       (audit.held, audit.committed, audit.released, audit.expired) = (hold.held, hold.committed, hold.released, hold.expired),
       (SELECT coalesce(sum(reserved), 0)::bigint FROM baseline.stocks) - hold.units,
       (SELECT coalesce(sum(stock), 0)::bigint FROM baseline.stocks) + hold.sold
FROM audit, hold`

// Sold counts the answers of callers: Granted are holds and changes of
// quantity, Committed and Released the holds that ended so. Expired are the
// holds that no caller ended.
type Sold struct{ Granted, Committed, Released, Expired int64 }

// CheckSold fails unless the tables agree with the answers: each hold and each
// ending has its audit row, held units are counted once, and the stock is the
// initial stock less the units sold. It returns the counts of the tables.
func CheckSold(ctx context.Context, db *pgxpool.Pool, want Sold, stock int64) (got Sold, err error) {
	var recorded bool
	var uncounted, stocked int64
	err = db.QueryRow(ctx, countSold).Scan(&got.Granted, &got.Committed, &got.Released, &got.Expired, &recorded, &uncounted, &stocked)
	if err != nil {
		return got, fmt.Errorf("count the baseline's rows: %w", err)
	}
	want.Expired = got.Expired
	if got != want || !recorded || uncounted != 0 || stocked != stock {
		return got, fmt.Errorf("the baseline's rows do not add up: %+v, want %+v; an audit row each: %t; %d units more reserved than held; %d units of %d",
			got, want, recorded, uncounted, stocked, stock)
	}
	return got, nil
}
