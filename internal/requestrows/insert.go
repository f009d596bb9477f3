package requestrows

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/internal/lanes"
	"github.com/holdfast/holdfast/internal/pg"
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
	// the requests that were inserted. Those that it refuses are deleted again.
	// The error under each name is the result of that submission.
	Decide func(ctx context.Context, tx pgx.Tx, inserted []requests.Request) (refused map[Ref]error, err error)
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

// insertGroup is the state of an insertion.
type insertGroup struct {
	Insertion
	keyed     bool               // a submission has an idempotency key
	retries   bool               // a submission retries a failed request
	places    map[Ref]int        // indexes of the submissions in the group; of two with the same name the first is inserted
	inserted  []requests.Request // nil until the insert has run
	leaving   map[Ref]int16      // the hot slots of requests whose variants are leaving the hot lane
	foreign   map[Key]bool       // keys of the group that belong to synchronous calls
	retried   map[Ref]retriedState
	withdrawn map[Ref]error
}

func newInsertGroup(n Insertion) *insertGroup {
	slices.SortStableFunc(n.Group, func(a, b Submission) int {
		return cmp.Or(bytes.Compare(a.TenantID[:], b.TenantID[:]), bytes.Compare(a.RetryOf[:], b.RetryOf[:]), cmp.Compare(a.IdempotencyKey, b.IdempotencyKey))
	})
	g := &insertGroup{Insertion: n, places: make(map[Ref]int, len(n.Group))}
	for i := len(g.Group) - 1; i >= 0; i-- {
		g.places[g.Group[i].Ref()] = i
		g.keyed = g.keyed || g.Group[i].IdempotencyKey != ""
		g.retries = g.retries || g.Group[i].RetryOf != uuid.Nil
	}
	return g
}

// sent returns the error of the batch that inserts the group.
func (n *insertGroup) sent(err error) error {
	if err != nil && n.Queue != nil && n.inserted != nil {
		return &BesideError{err}
	}
	return err
}

// decideTx deletes the requests that are refused, records the retries that
// remain, and returns the result.
func (n *insertGroup) decideTx(ctx context.Context, tx pgx.Tx) (Inserted, error) {
	if n.Decide != nil {
		refused, err := n.Decide(ctx, tx, n.inserted)
		if err == nil && len(refused) > 0 {
			err = n.withdrawTx(ctx, tx, refused)
		}
		if err != nil {
			return Inserted{}, err
		}
	}
	if n.retries {
		if err := n.recordRetriesTx(ctx, tx); err != nil {
			return Inserted{}, err
		}
	}
	return n.result(ctx, tx, nil)
}

// result returns the result of the group, with the requests that were decided
// in the same transaction.
func (n *insertGroup) result(ctx context.Context, db Querier, decided []requests.View) (Inserted, error) {
	results, err := n.results(ctx, db)
	if err != nil {
		return Inserted{}, err
	}
	for _, v := range decided {
		results[RefOf(&v.Request)] = Result{View: v}
	}
	done := Inserted{Results: results}
	for i := range n.inserted {
		ref := RefOf(&n.inserted[i])
		if results[ref].View.Status != requests.Queued {
			continue
		}
		done.addStream(lanes.Stream{Lane: n.inserted[i].Lane, Slot: n.inserted[i].Slot})
		if slot, ok := n.leaving[ref]; ok {
			done.addStream(lanes.Stream{Lane: lanes.Hot, Slot: slot})
		}
	}
	return done, nil
}

func (i *Inserted) addStream(stream lanes.Stream) {
	if !slices.Contains(i.Streams, stream) {
		i.Streams = append(i.Streams, stream)
	}
}

// withdrawForeignSQL deletes the group's rows whose keys belong to calls that
// finish at once. It is a separate statement after the insert, because an
// insert that waited for such a call (see ReserveKeyTx) does not see the key
// that the call committed. It deletes no earlier row: such a call never claims
// a key of a request.
const withdrawForeignSQL = `
WITH used AS MATERIALIZED (
    SELECT a.tenant_id, a.request_id
    FROM unnest($1::uuid[], $2::uuid[], $3::text[]) AS a (tenant_id, request_id, idempotency_key)
    JOIN idempotency_keys k ON k.tenant_id = a.tenant_id AND k.idempotency_key = a.idempotency_key
)
DELETE FROM reservation_requests r
USING used
WHERE r.tenant_id = used.tenant_id AND r.request_id = used.request_id
RETURNING r.tenant_id, r.idempotency_key`

// queue adds to b the statements that insert the group, except the submissions
// whose keys belong to synchronous calls, and then those of Insertion.Queue.
func (n *insertGroup) queue(b *pgx.Batch) {
	pg.QueueIsolation(b)    // an older snapshot misses a route or a key that was committed since
	n.queueLockRetried(b)   // before a key is locked, as every admission does
	b.Queue(lanes.EnterSQL) // before a sequence number is drawn
	n.queueInsert(b, n.AssumeNew && !n.keyed && !n.retries, nil)
	if n.keyed {
		n.queueWithdrawForeign(b)
	}
	if n.Queue != nil {
		n.Queue(b)
	}
}

func (n *insertGroup) queueWithdrawForeign(b *pgx.Batch) {
	tenants, ids, keys := namesOf(n.Group)
	b.Queue(withdrawForeignSQL, tenants, ids, keys).Query(func(rows pgx.Rows) error {
		var k Key
		_, err := pgx.ForEachRow(rows, []any{&k.TenantID, &k.Key}, func() error {
			if n.foreign == nil {
				n.foreign = make(map[Key]bool)
			}
			n.foreign[k] = true
			return nil
		})
		if len(n.foreign) > 0 {
			n.inserted = slices.DeleteFunc(n.inserted, func(r requests.Request) bool { return n.foreign[n.Group[n.places[RefOf(&r)]].Key()] })
		}
		return err
	})
}

// toInserted reads a row of returning: the columns that the database adds to a
// submission.
func (n *insertGroup) toInserted(row pgx.CollectableRow) (r requests.Request, err error) {
	var leaving *int16
	err = row.Scan((*[16]byte)(&r.TenantID), (*[16]byte)(&r.RequestID), &r.Sequence, &r.Lane, &r.Slot, (*string)(&r.Status), &r.CreatedAt, &r.UpdatedAt, &leaving)
	if leaving != nil {
		if n.leaving == nil {
			n.leaving = make(map[Ref]int16)
		}
		n.leaving[RefOf(&r)] = *leaving
	}
	return n.Group[n.places[RefOf(&r)]].request(r), err
}

const withdrawSQL = `
DELETE FROM reservation_requests r
USING unnest($1::uuid[], $2::uuid[]) AS refused (tenant_id, request_id)
WHERE r.tenant_id = refused.tenant_id AND r.request_id = refused.request_id`

// withdrawTx deletes the inserted requests that are in refused.
func (n *insertGroup) withdrawTx(ctx context.Context, tx pgx.Tx, refused map[Ref]error) error {
	var tenants, ids [][16]byte
	n.inserted = slices.DeleteFunc(n.inserted, func(r requests.Request) bool {
		if refused[RefOf(&r)] == nil {
			return false
		}
		tenants, ids = append(tenants, r.TenantID), append(ids, r.RequestID)
		return true
	})
	n.withdrawn = refused
	_, err := tx.Exec(ctx, withdrawSQL, tenants, ids)
	return err
}

// results returns the result of each submission, by its name. It reads requests
// that existed before in a second statement, because the insert does not return
// them.
func (n *insertGroup) results(ctx context.Context, db Querier) (map[Ref]Result, error) {
	results := make(map[Ref]Result, len(n.Group))
	for ref, why := range n.withdrawn {
		results[ref] = Result{Err: why}
	}
	if len(n.foreign) > 0 {
		for i := range n.Group {
			if n.foreign[n.Group[i].Key()] {
				results[n.Group[i].Ref()] = Result{Err: ErrKeyReused}
			}
		}
	}
	for _, r := range n.inserted {
		results[RefOf(&r)] = Result{View: requests.View{Request: r}}
	}
	if len(results) == len(n.Group) {
		return results, nil
	}
	var existing []Submission
	for i := range n.Group {
		if _, ok := results[n.Group[i].Ref()]; !ok {
			existing = append(existing, n.Group[i])
		}
	}
	found, err := LookUp(ctx, db, existing)
	if err != nil {
		return nil, err
	}
	for i := range existing {
		result, ok := found[existing[i].Ref()]
		if !ok {
			result.Err = ErrKeyPurged
		}
		results[existing[i].Ref()] = result
	}
	return results, nil
}

// ErrKeyPurged means that the first use of a key was deleted between the two
// statements, by a purge or because its tenant moves to another cell. Nothing was
// written, and a repetition finds the key unused.
var ErrKeyPurged = errors.New("request: the first use of the idempotency key was purged just now")
