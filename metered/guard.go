package metered

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// inTx runs a verb in a transaction of its own: at READ COMMITTED even if the database's default is another level, because
// there a lost race is decided, and is no serialization failure. A refusal is committed, because what was counted on the way
// to it need not be counted again.
func inTx(ctx context.Context, db *pgxpool.Pool, do func(tx pgx.Tx) error) error {
	var refusal error
	err := pgx.BeginTxFunc(ctx, db, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		err := do(tx)
		if errors.Is(err, ErrRefused) {
			refusal = err
			return nil
		}
		return err
	})
	if err != nil {
		return err
	}
	return refusal
}

// exactly fails a batch whose statement did not reach all n rows, although they were locked. The transaction must be
// rolled back.
func exactly(n int, doing string) func(pgconn.CommandTag) error {
	return func(tag pgconn.CommandTag) error {
		if got := tag.RowsAffected(); got != int64(n) {
			return fmt.Errorf("metered: %s reached %d of %d rows", doing, got, n)
		}
		return nil
	}
}
