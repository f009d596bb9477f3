package requestrows

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/lanes"
	"github.com/holdfast/holdfast/internal/pg"
	"github.com/holdfast/holdfast/requests"
)

// Direct is a group of submissions that one transaction decides and then
// inserts as they were decided, so that a row is written once.
type Direct struct {
	// Group is as in Insertion.
	Group []Submission
	// Queue adds to b, which is the first round trip, the statements that lock
	// and read what the decision needs.
	Queue func(b *pgx.Batch)
	// Decide decides the requests of the group, in their order. They are not
	// inserted yet, and have no sequence number and no stream. It adds to b what
	// writes the decisions, except the rows of the requests, and returns the
	// requests that were decided. The others are inserted as queued.
	Decide func(ctx context.Context, tx pgx.Tx, b *pgx.Batch, group []requests.Request) ([]requests.View, error)
}

const (
	rollBackSQL = `ROLLBACK`
	commitSQL   = `COMMIT`
)

// keyWaitSQL bounds the wait for an idempotency key: a transaction that uses the
// key may wait for a stock that this one has locked. keyWaitedSQL restores the
// transaction's lock_timeout for what follows. An insert that waits as long to
// extend the table or an index fails too, and is tried again like any other.
const (
	keyWaitSQL   = `SELECT set_config('holdfast.lock_timeout', current_setting('lock_timeout'), true), set_config('lock_timeout', '20ms', true)`
	keyWaitedSQL = `SELECT set_config('lock_timeout', current_setting('holdfast.lock_timeout'), true)`
)

// foreignSQL fails with SQLSTATE 22P02 if one of the keys belongs to a
// synchronous call. It is a separate statement after the insert, for the reason
// of withdrawForeignSQL.
const foreignSQL = `
SELECT count(('the key belongs to a synchronous call of tenant ' || k.tenant_id)::integer)
FROM unnest($1::uuid[], $2::text[]) AS a (tenant_id, idempotency_key)
JOIN idempotency_keys k USING (tenant_id, idempotency_key)`

// Insert decides and inserts the group in a transaction on conn. The first round
// trip locks and reads, and the second one writes and commits. Decide may need
// others in between.
//
// It inserts the group like an Insertion, as queued, if nothing was decided, or
// if one of the requests exists. Keys are locked after the stocks, in the
// reverse of the usual order. So an insert that conflicts with another
// transaction's does not wait for long: Insert fails, and nothing is written.
// The caller then inserts the group as queued.
//
// The transaction must be READ COMMITTED, which is the session's default, else
// pg.ErrIsolation.
func (d Direct) Insert(ctx context.Context, conn *pgxpool.Conn) (Inserted, error) {
	g := newInsertGroup(Insertion{Group: d.Group, AssumeNew: true})
	var began time.Time
	b := &pgx.Batch{}
	b.BeginTx(pgx.TxOptions{})
	pg.QueueBegan(b, &began)
	g.queueLockRetried(b)
	taken := new([]int)
	if g.keyed {
		taken = QueueTaken(b, g.keys())
	}
	d.Queue(b)
	begun := conn.SendBatch(ctx, b)
	tx := begun.Tx()
	defer func() {
		if conn.Conn().PgConn().TxStatus() != 'I' {
			_ = tx.Rollback(ctx)
		}
	}()
	if err := begun.Close(); err != nil {
		return Inserted{}, err
	}
	var views []requests.View
	writes := &pgx.Batch{}
	if len(*taken) == 0 && g.isDistinct() {
		var err error
		views, err = d.Decide(ctx, tx, writes, g.requests(began))
		if err != nil {
			return Inserted{}, err
		}
	}
	if len(views) == 0 {
		return g.insertInstead(ctx, conn, tx)
	}
	if err := g.insertDecidedTx(ctx, tx, began, views, writes); err != nil {
		return Inserted{}, err
	}
	return g.result(ctx, conn, g.asInserted(views))
}

// insertInstead ends tx, which has written nothing, and inserts the group as
// queued. No key is awaited while tx has stocks locked.
func (n *insertGroup) insertInstead(ctx context.Context, conn *pgxpool.Conn, tx pgx.Tx) (Inserted, error) {
	if n.retries {
		if err := tx.Rollback(ctx); err != nil {
			return Inserted{}, err
		}
		return n.Insert(ctx, conn)
	}
	b := &pgx.Batch{}
	b.Queue(rollBackSQL)
	n.queue(b)
	if err := conn.SendBatch(ctx, b).Close(); err != nil {
		return Inserted{}, err
	}
	return n.result(ctx, conn, nil)
}

// insertDecidedTx inserts the group as it was decided, writes the decisions and
// commits. It fails, and nothing is written, if one of the requests exists.
func (n *insertGroup) insertDecidedTx(ctx context.Context, tx pgx.Tx, began time.Time, views []requests.View, writes *pgx.Batch) error {
	decided := &decidedGroup{began: began, at: views[0].UpdatedAt, views: make(map[Ref]requests.View, len(views))}
	for i := range views {
		decided.views[RefOf(&views[i].Request)] = views[i]
	}
	b := &pgx.Batch{}
	waits := n.keyed || n.retries
	if len(views) < len(n.Group) { // no mark waits for a request that is never queued
		b.Queue(lanes.EnterSQL) // before a sequence number is drawn
	}
	if waits {
		b.Queue(keyWaitSQL)
	}
	n.queueInsert(b, true, decided)
	if waits {
		b.Queue(keyWaitedSQL)
	}
	if n.keyed {
		tenants, _, keys := namesOf(n.Group)
		b.Queue(foreignSQL, tenants, keys)
	}
	if n.retries {
		audit.Queue(b, n.retryEntries(n.requests(began)))
	}
	b.QueuedQueries = append(b.QueuedQueries, writes.QueuedQueries...)
	// What is read of a result is checked only once the batch has run, and must
	// be checked before the commit.
	checked := slices.ContainsFunc(writes.QueuedQueries, func(q *pgx.QueuedQuery) bool { return q.Fn != nil })
	if !checked {
		b.Queue(commitSQL)
	}
	err := tx.SendBatch(ctx, b).Close()
	if err == nil && checked {
		err = tx.Commit(ctx)
	}
	return err
}

// requests returns the requests of the group as they are before they are
// inserted.
func (n *insertGroup) requests(began time.Time) []requests.Request {
	all := make([]requests.Request, len(n.Group))
	for i := range n.Group {
		all[i] = n.Group[i].request(requests.Request{Status: requests.Queued, CreatedAt: began, UpdatedAt: began})
	}
	return all
}

// asInserted returns the views with what the database adds to a request.
func (n *insertGroup) asInserted(views []requests.View) []requests.View {
	rows := make(map[Ref]*requests.Request, len(n.inserted))
	for i := range n.inserted {
		rows[RefOf(&n.inserted[i])] = &n.inserted[i]
	}
	for i := range views {
		r := &views[i].Request
		row := rows[RefOf(r)]
		r.Sequence, r.Lane, r.Slot, r.CreatedAt, r.UpdatedAt = row.Sequence, row.Lane, row.Slot, row.CreatedAt, row.UpdatedAt
	}
	return views
}

// keys returns the idempotency keys of the group.
func (n *insertGroup) keys() []Key {
	keys := make([]Key, 0, len(n.Group))
	for i := range n.Group {
		if n.Group[i].IdempotencyKey != "" {
			keys = append(keys, n.Group[i].Key())
		}
	}
	return keys
}

// isDistinct reports whether no two submissions have one name or one key.
func (n *insertGroup) isDistinct() bool {
	keys := n.keys()
	distinct := make(map[Key]struct{}, len(keys))
	for _, k := range keys {
		distinct[k] = struct{}{}
	}
	return len(n.places) == len(n.Group) && len(distinct) == len(keys)
}
