package projections

import (
	"context"
	"fmt"
	"math"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/audit"
)

// presentMax is how many records that the feed has not folded yet PresentTx
// folds at most.
const presentMax = 100_000

// pageSQL pages through the states of a projection.
const pageSQL = `
SELECT p.tenant_id, p.key, p.state, p.version, p.position, p.parked_at IS NOT NULL
FROM projection_snapshots p
WHERE p.projection_name = $1 AND (p.tenant_id, p.key) > ($2, $3)
ORDER BY p.tenant_id, p.key
LIMIT $4`

// PresentTx returns the states of all keys in the snapshot of the transaction,
// which must be REPEATABLE READ: with all records that are visible there, also
// those that the feed has not folded yet. So each state can be compared with
// the rows that the records are about.
//
// Error: the feed is more than 100,000 records behind; ErrJSON for a state that
// cannot be read; the database's.
func (r *Runtime[E, S, D]) PresentTx(ctx context.Context, tx pgx.Tx) (map[Key]S, error) {
	fail := func(err error) (map[Key]S, error) { return nil, failed("read the states of "+r.p.Name, err) }
	rows, err := r.storedTx(ctx, tx)
	if err != nil {
		return fail(err)
	}
	from, err := position(ctx, tx)
	if err != nil {
		return fail(err)
	}
	read := 0
	err = replay(ctx, tx, from, math.MaxInt64, func(records []audit.Record) bool {
		read += len(records)
		_ = r.foldRecords(rows, records, func(Key) bool { return true }) // the feed leaves invalid events out, too
		return read <= presentMax
	})
	if err != nil {
		return fail(err)
	}
	if read > presentMax {
		return nil, fmt.Errorf("projection: the feed is more than %d records behind", presentMax)
	}
	states := make(map[Key]S, len(rows))
	for key, stored := range rows {
		var state S
		if stored.version > 0 {
			if err := r.decode(key, stored.row, &state); err != nil {
				return nil, err
			}
			states[key] = state
		}
	}
	return states, nil
}

// stored is a state with its key.
type stored struct {
	key Key
	row
}

func (r *Runtime[E, S, D]) storedTx(ctx context.Context, tx pgx.Tx) (replayed, error) {
	states := make(replayed)
	last := Key{}
	for {
		rows, _ := tx.Query(ctx, pageSQL, r.p.Name, last.TenantID, last.Key, replayPage)
		page, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (s stored, err error) {
			var parked bool
			err = row.Scan((*[16]byte)(&s.key.TenantID), &s.key.Key, (*[]byte)(&s.state), &s.version, &s.position, &parked)
			if parked {
				s.parked = &parking{}
			}
			return s, err
		})
		if err != nil {
			return nil, err
		}
		for i := range page {
			last = page[i].key
			states[last] = folded{row: page[i].row}
		}
		if len(page) < replayPage {
			return states, nil
		}
	}
}
