package ready

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/projections"
)

// Report is the result of Verify.
type Report struct {
	// Compared is how many stocks were compared, Wrong how many of their states
	// differ or are missing.
	Compared, Wrong int
	// Found are the first of these, at most FoundMax.
	Found []Mismatch
}

// FoundMax is how many mismatches a Report lists at most.
const FoundMax = 20

// Mismatch is a stock whose state is another one than its row's.
type Mismatch struct {
	Key projections.Key
	// Row is what the stock's row has, State what the projection has: the zero
	// value without a state.
	Row, State Availability
}

// Verify compares the availability of every stock with its row, in one
// snapshot: with the records there that the feed has not folded yet. So it can
// run at any time.
//
// Error: the feed is more than 100,000 records behind; the
// database's.
func (s *Set) Verify(ctx context.Context) (r Report, err error) {
	options := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
	err = pgx.BeginTxFunc(ctx, s.db, options, func(tx pgx.Tx) error {
		states, err := s.Availability.PresentTx(ctx, tx)
		if err != nil {
			return err
		}
		var last projections.Key
		for {
			page, err := s.readStocks(ctx, tx, afterSQL, last.TenantID, last.Key, 5000)
			if err != nil || len(page) == 0 {
				return err
			}
			for _, stock := range page {
				last = stock.Key
				r.compare(stock.Key, stock.Availability, states[stock.Key])
			}
		}
	})
	if err != nil {
		return r, fmt.Errorf("verify the availability: %w", err)
	}
	return r, nil
}

func (r *Report) compare(key projections.Key, row, state Availability) {
	r.Compared++
	if row == state {
		return
	}
	r.Wrong++
	if len(r.Found) < FoundMax {
		r.Found = append(r.Found, Mismatch{key, row, state})
	}
}
