package pg

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// Batcher runs a batch: a pool, a connection or a transaction.
type Batcher interface {
	SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
}

// Collect adds a statement to b. The slice that it returns has the rows once
// the batch is sent and closed without an error. An error of scan is that of
// the batch.
func Collect[T any](b *pgx.Batch, scan pgx.RowToFunc[T], sql string, args ...any) *[]T {
	collected := new([]T)
	b.Queue(sql, args...).Query(func(rows pgx.Rows) (err error) {
		*collected, err = pgx.CollectRows(rows, scan)
		return err
	})
	return collected
}

// CollectOne is Collect for a statement that returns one row. For none, the
// error of the batch is pgx.ErrNoRows.
func CollectOne[T any](b *pgx.Batch, scan pgx.RowToFunc[T], sql string, args ...any) *T {
	collected := new(T)
	b.Queue(sql, args...).Query(func(rows pgx.Rows) (err error) {
		*collected, err = pgx.CollectExactlyOneRow(rows, scan)
		return err
	})
	return collected
}

// Querier runs queries: a pool, a connection or a transaction.
type Querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// Select returns the rows of a query.
func Select[T any](ctx context.Context, db Querier, scan pgx.RowToFunc[T], sql string, args ...any) ([]T, error) {
	rows, _ := db.Query(ctx, sql, args...) // the rows have the error
	return pgx.CollectRows(rows, scan)
}

// SelectOne is Select for a query that returns one row. For none, the error is
// pgx.ErrNoRows.
func SelectOne[T any](ctx context.Context, db Querier, scan pgx.RowToFunc[T], sql string, args ...any) (T, error) {
	rows, _ := db.Query(ctx, sql, args...) // the rows have the error
	return pgx.CollectExactlyOneRow(rows, scan)
}
