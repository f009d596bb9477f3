package requestrows

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/internal/lanes"
	"github.com/holdfast/holdfast/requests"
)

// Result is the outcome of an insertion for one submission: its request as it
// is stored, or the error because of which it has none.
type Result struct {
	View requests.View
	Err  error
}

// Insertion is a group of submissions that one transaction inserts, and what
// else that transaction does.
type Insertion struct {
	// Group are the submissions. They are sorted by tenant, retried request and
	// key.
	Group []Submission
	// AssumeNew makes the insert cheaper where no submission has a key or
	// retries a request. It then fails with SQLSTATE 23505 if one of the
	// requests exists.
	AssumeNew bool
	// Queue, if not nil, adds statements to the round trip of the insert, behind
	// it. If one of them fails, the error is a *BesideError.
	Queue func(b *pgx.Batch)
	// Decide, if not nil, is called in the transaction after the insert, with
	// the requests that were inserted.
	Decide func(ctx context.Context, tx pgx.Tx, inserted []requests.Request) (Decisions, error)
}

// Decisions is what Insertion.Decide has decided.
type Decisions struct {
	// Refused are deleted again if they were inserted. The error under each name
	// is the result of that submission.
	Refused map[Ref]error
	// Views are the requests that were decided, as they are then.
	Views []requests.View
}

// BesideError means that the group was inserted, and then a statement failed
// that is not the insertion's.
type BesideError struct{ cause error }

func (e *BesideError) Error() string { return e.cause.Error() }

// Unwrap returns the error of the statement.
func (e *BesideError) Unwrap() error { return e.cause }

// Inserted is the result of an insertion.
type Inserted struct {
	// Results has the result of each submission, by its name.
	Results map[Ref]Result
	// Streams are those whose drains may decide a queued request of the group:
	// its own and, while its variant is leaving the hot lane, the hot slot,
	// whose drain decides it until the move ends.
	Streams []lanes.Stream
}

// Insert inserts the group in a transaction on conn. It takes one round trip if
// there is nothing to decide and no submission retries a request. A group with
// a retry takes three, because the retries that are inserted are recorded.
//
// The transaction must be READ COMMITTED, which is the session's default, else
// pg.ErrIsolation.
func (n Insertion) Insert(ctx context.Context, conn *pgxpool.Conn) (Inserted, error) {
	g, b := newInsertGroup(n), &pgx.Batch{}
	if n.Decide == nil && !g.retries { // the statements of a batch are one transaction
		g.queue(b)
		if err := g.sent(conn.SendBatch(ctx, b).Close()); err != nil {
			return Inserted{}, err
		}
		return g.result(ctx, conn, nil)
	}
	b.BeginTx(pgx.TxOptions{})
	g.queue(b)
	begun := conn.SendBatch(ctx, b)
	tx := begun.Tx()
	defer func() { _ = tx.Rollback(ctx) }()
	if err := g.sent(begun.Close()); err != nil {
		return Inserted{}, err
	}
	inserted, err := g.decideTx(ctx, tx)
	if err != nil {
		return Inserted{}, err
	}
	return inserted, tx.Commit(ctx)
}

// InsertTx is Insert in the caller's transaction, which must be READ COMMITTED,
// else pg.ErrIsolation. After an error the caller rolls back.
func (n Insertion) InsertTx(ctx context.Context, tx pgx.Tx) (Inserted, error) {
	g, b := newInsertGroup(n), &pgx.Batch{}
	g.queue(b)
	if err := g.sent(tx.SendBatch(ctx, b).Close()); err != nil {
		return Inserted{}, err
	}
	return g.decideTx(ctx, tx)
}
