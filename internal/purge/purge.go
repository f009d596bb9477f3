package purge

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Batch is how many rows one transaction of a purge reads.
const Batch = 2000

// InBatches repeats a purge of one batch until no more is left, or until the
// batches have read as many rows as the limit. Then it reports bounded.
func InBatches(limit int, batch func() (deleted int64, more bool, err error)) (total int64, bounded bool, err error) {
	for read := 0; read < limit; read += Batch {
		deleted, more, err := batch()
		total += deleted
		if err != nil || !more {
			return total, false, err
		}
	}
	return total, true, nil
}

// Old deletes rows that are older than age by the database's clock, and returns
// how many. The statement's parameters are the age and limit, the number of
// rows that it deletes at most. what names the rows in errors.
func Old(ctx context.Context, db *pgxpool.Pool, what, statement string, age time.Duration, limit int) (int64, error) {
	tag, err := db.Exec(ctx, statement, age, limit)
	if err != nil {
		return 0, fmt.Errorf("purge %s: %w", what, err)
	}
	return tag.RowsAffected(), nil
}

// Position is a key of the table, (tenant, scope). The zero value is before
// the first row.
type Position struct {
	TenantID uuid.UUID
	Scope    string
}

// Idle runs one step of a walk, and returns the last row that it read and
// whether rows may follow it. The statement reads up to limit rows after a
// position and deletes the idle ones among them. It returns one row: the key of
// the last row read, the number of rows deleted and the number read. Its
// parameters are the tenant and scope of the position, the limit, and then
// args. what names the rows in errors.
func Idle(ctx context.Context, db *pgxpool.Pool, what, statement string, after Position, limit int, args ...any) (last Position, deleted int64, more bool, err error) {
	var read int64
	err = db.QueryRow(ctx, statement, append([]any{after.TenantID, after.Scope, limit}, args...)...).
		Scan(&last.TenantID, &last.Scope, &deleted, &read)
	if errors.Is(err, pgx.ErrNoRows) {
		return Position{}, 0, false, nil
	}
	if err != nil {
		return Position{}, 0, false, fmt.Errorf("purge %s: %w", what, err)
	}
	return last, deleted, read == int64(limit), nil
}

// Walk remembers a position in a table whose purge reads rows that it keeps, so
// that several bounded purges reach the rows behind them. The zero value of P
// is the start of the table.
type Walk[P any] struct {
	mu sync.Mutex
	at P
}

// On goes on where the walk before it stopped, up to the limit or the end. The
// walk after an end begins again at the start. Of two at once, one has read the
// same piece in vain.
func (w *Walk[P]) On(limit int, step func(after P) (last P, deleted int64, more bool, err error)) (deleted int64, bounded bool, err error) {
	w.mu.Lock()
	after := w.at
	w.mu.Unlock()
	deleted, bounded, err = InBatches(limit, func() (int64, bool, error) {
		last, deleted, more, err := step(after)
		switch {
		case err != nil: // the next walk tries the same piece
		case more:
			after = last
		default:
			var start P
			after = start
		}
		return deleted, more, err
	})
	w.mu.Lock()
	w.at = after
	w.mu.Unlock()
	return deleted, bounded, err
}
