package horizon

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// Numbers are the numbers that a sequence draws for the rows of a table.
//
// A copy of a database whose sequence has not kept up with its rows (logical
// replication, a data-only restore) draws numbers that its rows already have:
// what is written then comes before what was written earlier, or below a mark
// that no reader looks behind.
type Numbers struct {
	// Sequence and Table name the sequence and its table.
	Sequence, Table string
	// Highest is a SELECT of the highest number in the schema, also in marks
	// and positions; NULL for none. It must not read the whole table.
	Highest string
}

// Position is how far a sequence has come.
type Position struct {
	// Drawn is the last number drawn, Highest the highest in the schema; 0 for
	// none.
	Drawn, Highest int64
}

// Behind reports whether the sequence draws numbers that exist already.
func (p Position) Behind() bool { return p.Drawn < p.Highest }

// Queue adds to b the statement that reads the position.
//
// The last number drawn is read after the snapshot of the statement is taken,
// so a running writer does not make the sequence seem behind.
func (n Numbers) Queue(b *pgx.Batch, p *Position) {
	sql := `SELECT (SELECT ` + Drawn + ` FROM ` + n.Sequence + `), coalesce((` + n.Highest + `), 0)`
	b.Queue(sql).QueryRow(func(row pgx.Row) error { return row.Scan(&p.Drawn, &p.Highest) })
}

const (
	raiseTimeoutSQL = `SELECT set_config('lock_timeout', '4s', true)`
	setSQL          = `SELECT setval($1::text::regclass, $2)`
)

// Raise raises the sequence to the highest number if it is behind, and returns
// the position that it found. While it does so, it excludes all transactions
// that write the table, for which it waits up to 4 s. A sequence that is not
// behind costs one statement, which locks nothing. On a standby nothing is
// raised.
//
// The role needs the privileges UPDATE on the sequence and on the table.
func (n Numbers) Raise(ctx context.Context, conn *pgx.Conn) (found Position, err error) {
	standby := false
	b := &pgx.Batch{}
	n.Queue(b, &found)
	b.Queue(`SELECT pg_is_in_recovery()`).QueryRow(func(row pgx.Row) error { return row.Scan(&standby) })
	if err := conn.SendBatch(ctx, b).Close(); err != nil || standby || !found.Behind() {
		return Position{}, n.wrap(err)
	}
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		b := &pgx.Batch{}
		b.Queue(raiseTimeoutSQL)
		b.Queue(`LOCK TABLE ` + n.Table + ` IN SHARE ROW EXCLUSIVE MODE`)
		n.Queue(b, &found)
		if err := tx.SendBatch(ctx, b).Close(); err != nil || !found.Behind() {
			return err
		}
		_, err := tx.Exec(ctx, setSQL, n.Sequence, found.Highest)
		return err
	})
	return found, n.wrap(err)
}

func (n Numbers) wrap(err error) error {
	if err != nil {
		return fmt.Errorf("compare the sequence %s with the rows of %s: %w", n.Sequence, n.Table, err)
	}
	return nil
}
