package cells

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/pg"
)

// copyBatch is how many rows one statement writes.
const copyBatch = 2000

// plainSQL makes the texts of values the same in all cells, and bounds nothing.
const plainSQL = `
SELECT set_config('TimeZone', 'UTC', true), set_config('DateStyle', 'ISO, YMD', true), set_config('IntervalStyle', 'postgres', true),
       set_config('bytea_output', 'hex', true), set_config('extra_float_digits', '1', true), set_config('statement_timeout', '0', true)`

// inPlain runs fn in a transaction with plainSQL.
func (c Cell) inPlain(ctx context.Context, options pgx.TxOptions, fn func(pgx.Tx) error) error {
	return pgx.BeginTxFunc(ctx, c.Pool, options, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, plainSQL); err != nil {
			return err
		}
		return fn(tx)
	})
}

var (
	// errArrived means that an earlier attempt has made the tenant active: its rows
	// must not be overwritten.
	errArrived = errors.New("the tenant is active in the new cell")
	// errGivenUp means that GiveUp has ended the move.
	errGivenUp = errors.New("the move was given up")
)

// whileArriving runs fn in a transaction of the new cell during which the tenant
// stays arriving, by a lock on its state: FOR SHARE, or FOR UPDATE.
func (m *mover) whileArriving(ctx context.Context, lock string, fn func(young pgx.Tx) error) error {
	return m.to.inPlain(ctx, pgx.TxOptions{}, func(young pgx.Tx) error {
		var state string
		err := young.QueryRow(ctx, `SELECT state FROM tenant_state WHERE tenant_id = $1 `+lock, m.tenantID).Scan(&state)
		switch {
		case errors.Is(err, pgx.ErrNoRows):
			return errGivenUp
		case err != nil:
			return err
		case state == stateActive:
			return errArrived
		case state != stateArriving:
			return errGivenUp
		default:
			return fn(young)
		}
	})
}

// snapshot is a transaction that sees one state of the cell.
var snapshot = pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}

// round copies what has changed since the last round, but nothing that is live,
// and returns how many rows that were. Each batch is a transaction of its own in
// the new cell, so that no transaction is long there.
//
// The new cell may have a row that is in the way because the old one does not have
// it: of a request that was purged, whose idempotency key is used again, or of a
// call that reached the cell after the tenant had left it. Such a table is compared
// at once, which deletes the row.
func (m *mover) round(ctx context.Context, step string) (copied int64, err error) {
	since, err := m.to.copiedXID(ctx, m.tenantID)
	if err != nil {
		return 0, err
	}
	err = m.from.inPlain(ctx, snapshot, func(old pgx.Tx) error {
		var xmin string
		if err := old.QueryRow(ctx, `SELECT pg_snapshot_xmin(pg_current_snapshot())::text`).Scan(&xmin); err != nil {
			return err
		}
		for _, t := range moved(m.all) {
			n, err := m.copyRows(ctx, old, m.put, &t, t.changedSQL(false), m.tenantID, since)
			copied += n
			if pg.Code(err) == "23505" { // unique_violation
				err = m.whileArriving(ctx, "FOR SHARE", func(young pgx.Tx) error { return m.repair(ctx, old, young, &t, false) })
			}
			if err != nil {
				return fmt.Errorf("copy %s: %w", t.name, err)
			}
			m.progress(step, copied)
		}
		_, err := m.to.Pool.Exec(ctx, `UPDATE tenant_state SET copied_xid = $2::text::xid8 WHERE tenant_id = $1 AND state = 'arriving'`, m.tenantID, xmin)
		return err
	})
	return copied, err
}

// copiedXID is the end of the last round, nil before the first one.
func (c Cell) copiedXID(ctx context.Context, tenantID any) (xid *string, err error) {
	err = c.Pool.QueryRow(ctx, `SELECT copied_xid::text FROM tenant_state WHERE tenant_id = $1`, tenantID).Scan(&xid)
	return xid, err
}

// put writes rows in a transaction of its own.
func (m *mover) put(ctx context.Context, t *table, rows []string) error {
	return m.whileArriving(ctx, "FOR SHARE", func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, t.putSQL(), rows)
		return err
	})
}

// copyRows reads rows of the old cell and puts them into the new one in batches.
func (m *mover) copyRows(ctx context.Context, old pgx.Tx, put func(context.Context, *table, []string) error, t *table, sql string, args ...any) (copied int64, err error) {
	rows, _ := old.Query(ctx, sql, args...) //nolint:rowserrcheck // ForEachRow checks it
	batch := make([]string, 0, copyBatch)
	flush := func() error {
		if len(batch) == 0 {
			return nil
		}
		copied += int64(len(batch))
		err := put(ctx, t, batch)
		batch = batch[:0]
		return err
	}
	var text string
	_, err = pgx.ForEachRow(rows, []any{&text}, func() error {
		batch = append(batch, text)
		if len(batch) < copyBatch {
			return nil
		}
		return flush()
	})
	if err == nil {
		err = flush()
	}
	return copied, err
}

// compare compares all rows of a table by their hashes, which it reads from both
// cells at once. It returns the keys of those that are missing in the new cell or
// differ there, and of those that only the new cell has, live or not. Without live,
// it takes those that are live in the old cell for missing there.
func (m *mover) compare(ctx context.Context, old, young pgx.Tx, t *table, live bool) (lacking, extra []string, err error) {
	ours, theirs := readHashes(ctx, old, t.hashesSQL(live), m.tenantID), readHashes(ctx, young, t.hashesSQL(true), m.tenantID)
	defer ours.rows.Close()
	defer theirs.rows.Close()
	ours.next()
	theirs.next()
	for ours.more || theirs.more {
		switch {
		case !theirs.more || ours.more && ours.key < theirs.key:
			lacking = append(lacking, ours.key)
			ours.next()
		case !ours.more || ours.key > theirs.key:
			extra = append(extra, theirs.key)
			theirs.next()
		default:
			if ours.hash != theirs.hash {
				lacking = append(lacking, ours.key)
			}
			ours.next()
			theirs.next()
		}
	}
	return lacking, extra, errors.Join(ours.err, theirs.err)
}

// hashes are the rows of hashesSQL, one after the other.
type hashes struct {
	rows pgx.Rows
	more bool // there is a row: its key and hash
	key  string
	hash int64
	err  error
}

func readHashes(ctx context.Context, tx pgx.Tx, sql string, args ...any) *hashes {
	rows, err := tx.Query(ctx, sql, args...) //nolint:rowserrcheck // next checks it
	return &hashes{rows: rows, err: err}
}

func (h *hashes) next() {
	h.more = h.err == nil && h.rows.Next()
	if h.more {
		h.err = h.rows.Scan(&h.key, &h.hash)
	} else if h.err == nil {
		h.err = h.rows.Err()
	}
	h.more = h.more && h.err == nil
}

// repair makes the rows of a table equal.
func (m *mover) repair(ctx context.Context, old, young pgx.Tx, t *table, live bool) error {
	lacking, extra, err := m.compare(ctx, old, young, t, live)
	if err != nil {
		return fmt.Errorf("compare %s: %w", t.name, err)
	}
	if len(extra) > 0 {
		if _, err := young.Exec(ctx, t.deleteSQL(), m.tenantID, extra); err != nil {
			return fmt.Errorf("delete rows of %s that are gone: %w", t.name, err)
		}
	}
	if len(lacking) > 0 {
		_, err = m.copyRows(ctx, old, putTx(young), t, t.namedSQL(), m.tenantID, lacking)
	}
	if err != nil {
		return fmt.Errorf("copy rows of %s that differ: %w", t.name, err)
	}
	return nil
}

// putTx writes rows in the caller's transaction.
func putTx(tx pgx.Tx) func(context.Context, *table, []string) error {
	return func(ctx context.Context, t *table, rows []string) error {
		_, err := tx.Exec(ctx, t.putSQL(), rows)
		return err
	}
}

// repairAll compares what is copied, one table after another, and makes it equal.
// Rows were deleted in the old cell, or purged in the new one.
func (m *mover) repairAll(ctx context.Context) error {
	return m.from.inPlain(ctx, snapshot, func(old pgx.Tx) error {
		for i, t := range moved(m.all) {
			if t.live == always { // nothing of it is copied yet
				continue
			}
			err := m.whileArriving(ctx, "FOR SHARE", func(young pgx.Tx) error {
				return m.repair(ctx, old, young, &t, false)
			})
			if err != nil {
				return err
			}
			m.progress("compared tables", int64(i+1))
		}
		return nil
	})
}
