package projections

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/auditrows"
	"github.com/holdfast/holdfast/internal/pg"
)

// RebuildFromRecord replaces the state of a key, or of all keys without one, by
// a fold of the record up to the feed's position, as Rebuild does for each. It
// returns how many states it wrote. A key without a record loses its state.
//
// It replaces 200 states per transaction, and reads each record once, those that
// the feed delivers meanwhile included. If it ends in the middle, each state is as
// it was or rebuilt.
//
// It goes on after a failed broadcast, after a key that it parks, whose error is
// ErrParked, and after a key none of whose events can be folded, which keeps its
// state. If a record cannot be decoded, or its key is invalid, keys without a
// record keep their states, too. These errors are returned at the end: an
// ErrBroadcast if a broadcast was all that failed.
//
// What was pruned from the record is not in the result.
func (f *Feed) RebuildFromRecord(ctx context.Context, name string, only *Key) (int, error) {
	for _, r := range f.all() {
		if r.name() == name {
			return r.rebuildKeys(ctx, only)
		}
	}
	return 0, fmt.Errorf("projection: no projection %q", name)
}

// replayPage is how many records are read at a time. replayKeys is how many keys
// are rebuilt in one transaction.
const (
	replayPage = 5000
	replayKeys = 200
)

const replaySQL = `
SELECT a.tenant_id, a.target_id, a.audit_id, a.created_at, a.action, ` + auditrows.Columns + `
FROM audit_log a
WHERE a.audit_id > $1 AND a.audit_id <= $2
ORDER BY a.audit_id
FETCH FIRST ($3) ROWS WITH TIES`

// positionSQL is also the id up to which every row of the record is visible.
const positionSQL = `SELECT s.position FROM audit_subscriptions s WHERE s.name = '` + subscription + `'`

// querier reads rows and single rows: a pool or a transaction.
type querier interface {
	audit.Querier
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// position returns how far the feed has come.
func position(ctx context.Context, db querier) (at int64, err error) {
	err = db.QueryRow(ctx, positionSQL).Scan(&at)
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, errors.New("no feed of projections has run yet")
	}
	return at, err
}

// replay calls each with the records above from, up to the given id, until it
// returns false.
func replay(ctx context.Context, db querier, from, to int64, each func([]audit.Record) bool) error {
	for from < to {
		rows, _ := db.Query(ctx, replaySQL, from, to, replayPage)
		records, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (r audit.Record, err error) {
			err = auditrows.Scan(row, &r.Action, &r.Before, &r.After,
				(*[16]byte)(&r.TenantID), (*[16]byte)(&r.TargetID), &r.AuditID, &r.CreatedAt, &r.Action)
			return r, err
		})
		if err != nil {
			return err
		}
		if !each(records) || len(records) < replayPage {
			return nil
		}
		from = records[len(records)-1].AuditID
	}
	return nil
}

// replayed are the folded states of keys.
type replayed map[Key]folded

// add adds a key without a record.
func (s replayed) add(key Key) {
	if _, known := s[key]; !known {
		s[key] = folded{}
	}
}

// foldRecords folds the records into the states of their keys. The error is that
// of the first record whose event or key is invalid.
func (r *Runtime[E, S, D]) foldRecords(states replayed, records []audit.Record, wanted func(Key) bool) error {
	g := r.collect(records, map[any]any{}).(*grouped[E, S, D])
	for i, key := range g.key {
		if !wanted(key) {
			continue
		}
		sum := states[key]
		for from, done := 0, false; !done; {
			part, next := g.fold(i, from, sum.row)
			sum.add(part)
			sum.messages = nil
			from, done = next, next == 0
		}
		states[key] = sum
	}
	return g.failure
}

// rebuild is a rebuild from the record. states are those of the keys that are
// not written yet, with all of their records up to until. refused is the error
// of the first record whose event or key is invalid. kept is why the first key
// that is not rebuilt keeps its state.
type rebuild[E, S, D any] struct {
	*Runtime[E, S, D]
	states        replayed
	wanted        func(Key) bool
	until         int64
	refused, kept error
	unsent        error // the first ErrBroadcast
}

// advance folds the records that the feed has delivered since the last call, and
// the whole record the first time. It returns how many it has read: a rebuild
// reads each record once.
func (r *rebuild[E, S, D]) advance(ctx context.Context, db querier) (read int, err error) {
	now, err := position(ctx, db)
	if err != nil {
		return 0, err
	}
	err = replay(ctx, db, r.until, now, func(records []audit.Record) bool {
		r.refused = cmp.Or(r.refused, r.foldRecords(r.states, records, r.wanted))
		read += len(records)
		return true
	})
	r.until = max(r.until, now)
	return read, err
}

// catchUpPasses bounds the passes before the first key is locked. Each reads
// what the feed has delivered during the one before.
const catchUpPasses = 8

func (r *Runtime[E, S, D]) rebuildKeys(ctx context.Context, only *Key) (written int, err error) {
	fail := func(err error) (int, error) { return written, failed("rebuild "+r.p.Name, err) }
	all := &rebuild[E, S, D]{Runtime: r, states: make(replayed)}
	all.wanted = func(key Key) bool { return only == nil || key == *only }
	for range catchUpPasses {
		n, err := all.advance(ctx, r.db)
		if err != nil {
			return fail(err)
		}
		if n < replayPage {
			break
		}
	}
	if err := r.addStored(ctx, all.states, only); err != nil {
		return fail(err)
	}
	keys := sortedKeys(all.states)
	all.wanted = func(key Key) bool { _, waits := all.states[key]; return waits } // the feed makes the new ones
	for part := range slices.Chunk(keys, replayKeys) {
		n, err := all.replaceKeys(ctx, part)
		written += n
		if err != nil {
			return fail(err)
		}
	}
	return written, errors.Join(all.kept, all.unsent)
}

// addStored adds the keys that have a state, and possibly no record.
func (r *Runtime[E, S, D]) addStored(ctx context.Context, states replayed, only *Key) error {
	if only != nil {
		states.add(*only)
		return nil
	}
	last := Key{}
	for {
		rows, _ := r.db.Query(ctx, keysSQL, r.p.Name, last.TenantID, last.Key, replayPage)
		stored, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (k Key, err error) {
			return k, row.Scan((*[16]byte)(&k.TenantID), &k.Key)
		})
		if err != nil {
			return err
		}
		for _, key := range stored {
			states.add(key)
			last = key
		}
		if len(stored) < replayPage {
			return nil
		}
	}
}

// replaceKeys folds what the feed has delivered since the last keys, locks these
// keys, folds the rest, and replaces their states.
func (r *rebuild[E, S, D]) replaceKeys(ctx context.Context, keys []Key) (written int, err error) {
	if _, err := r.advance(ctx, r.db); err != nil {
		return 0, err
	}
	at := make([]place, len(keys))
	for i, key := range keys {
		at[i] = place{r.p.Name, key}
	}
	var change Change // without events: they were counted when they were folded first
	err = pgx.BeginTxFunc(ctx, r.db, readCommitted, func(tx pgx.Tx) error {
		stored, err := openTx(ctx, tx, at, pg.QueueLookUp)
		if err != nil {
			return err
		}
		// Under the locks: the feed folds later records of these keys after this.
		if _, err := r.advance(ctx, tx); err != nil {
			return err
		}
		var places []place
		var changed []row
		for i, key := range keys {
			after, ok := r.result(ctx, key, stored[i])
			if !ok && !stored[i].empty() {
				continue
			}
			places, changed = append(places, at[i]), append(changed, after)
			change.messages = append(change.messages, r.rebuilt(key, after)...)
			if after.version > 0 {
				written++
			}
		}
		return writeTx(ctx, tx, places, changed)
	})
	if err != nil {
		return 0, err
	}
	for _, key := range keys {
		delete(r.states, key)
	}
	if err := r.Broadcast(ctx, change); err != nil {
		r.unsent = cmp.Or(r.unsent, err)
	}
	return written, nil
}

// result returns the row that replaces the stored one, false if the stored one
// is kept.
func (r *rebuild[E, S, D]) result(ctx context.Context, key Key, stored row) (after row, ok bool) {
	result := r.states[key]
	r.reportSkipped(ctx, key, &result)
	if result.refusedAll() || r.refused != nil && result.applied == 0 && stored.version > 0 {
		r.kept = cmp.Or(r.kept, result.failure, r.refused)
		return row{}, false
	}
	if result.parked != nil {
		r.kept = cmp.Or(r.kept, error(&Error{ErrParked, r.p.Name, key, result.parked.cause}))
	}
	return succeed(stored, result, r.until), true
}
