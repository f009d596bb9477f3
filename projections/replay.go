package projections

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/audit"
)

// RebuildFromRecord replaces the state of a key, or of all keys without one, by
// a fold of the record up to the feed's position, as Rebuild does for each. It
// returns how many states it wrote. A key without a record loses its state.
//
// What was pruned from the record is not in the result: see RecordBegin.
func (f *Feed) RebuildFromRecord(ctx context.Context, name string, only *Key) (int, error) {
	for _, r := range f.all() {
		if r.name() == name {
			return r.rebuildKeys(ctx, only)
		}
	}
	return 0, fmt.Errorf("projection: no projection %q", name)
}

const recordBeginSQL = `
SELECT coalesce((SELECT a.audit_id FROM audit_log a ORDER BY a.audit_id LIMIT 1), 0)`

// RecordBegin returns the id of the oldest audit row, 0 without any. If it is
// above 1, earlier ones may have been pruned.
func RecordBegin(ctx context.Context, db audit.Querier) (int64, error) {
	rows, _ := db.Query(ctx, recordBeginSQL)
	id, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[int64])
	return id, typed(err, "find the beginning of the record")
}

// replayPage is how many records are read at a time. replayKeys is how many keys
// are rebuilt in one transaction.
const (
	replayPage = 5000
	replayKeys = 200
)

const replaySQL = `
SELECT a.tenant_id, a.target_id, a.audit_id, a.created_at, a.action, a.before, a.after
FROM audit_log a
WHERE a.audit_id > $1 AND a.audit_id <= $2
ORDER BY a.audit_id
LIMIT $3`

// positionSQL is also the id up to which every row of the record is visible.
const positionSQL = `SELECT s.position FROM audit_subscriptions s WHERE s.name = '` + Subscription + `'`

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
			return r, row.Scan((*[16]byte)(&r.TenantID), (*[16]byte)(&r.TargetID), &r.AuditID, &r.CreatedAt, &r.Action, (*[]byte)(&r.Before), (*[]byte)(&r.After))
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

// foldRecords folds the records into the states of their keys.
func (r *Runtime[E, S, D]) foldRecords(states replayed, records []audit.Record, wanted func(Key) bool) {
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
}

func (r *Runtime[E, S, D]) rebuildKeys(ctx context.Context, only *Key) (written int, err error) {
	fail := func(err error) (int, error) { return written, typed(err, "rebuild "+r.p.Name) }
	states := make(replayed)
	wanted := func(key Key) bool { return only == nil || key == *only }
	until, err := position(ctx, r.db)
	if err != nil {
		return fail(err)
	}
	foldInto := func(records []audit.Record) bool {
		r.foldRecords(states, records, wanted)
		return true
	}
	if err := replay(ctx, r.db, 0, until, foldInto); err != nil {
		return fail(err)
	}
	if err := r.addStored(ctx, states, only); err != nil {
		return fail(err)
	}
	keys := slices.SortedFunc(maps.Keys(states), func(a, b Key) int {
		return slices.Compare(append(a.TenantID[:], a.Key...), append(b.TenantID[:], b.Key...))
	})
	for part := range slices.Chunk(keys, replayKeys) {
		n, err := r.replaceKeys(ctx, part, states, until)
		written += n
		if err != nil {
			return fail(err)
		}
	}
	return written, nil
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

// replaceKeys locks the keys, folds what the feed has delivered since the fold,
// and replaces their states.
func (r *Runtime[E, S, D]) replaceKeys(ctx context.Context, keys []Key, states replayed, until int64) (written int, err error) {
	at, after := make([]place, len(keys)), make([]row, len(keys))
	mine := make(map[Key]bool, len(keys))
	for i, key := range keys {
		at[i], mine[key] = place{r.p.Name, key}, true
	}
	var change Change // without events: they were counted when they were folded first
	err = pgx.BeginTxFunc(ctx, r.db, readCommitted, func(tx pgx.Tx) error {
		stored, err := openTx(ctx, tx, at, lookUp)
		if err != nil {
			return err
		}
		now, err := position(ctx, tx) // under the locks: the feed folds later records after this
		if err != nil {
			return err
		}
		foldInto := func(records []audit.Record) bool {
			r.foldRecords(states, records, func(key Key) bool { return mine[key] })
			return true
		}
		if err := replay(ctx, tx, until, now, foldInto); err != nil {
			return err
		}
		for i, key := range keys {
			result := states[key]
			r.reportSkipped(ctx, key, &result)
			after[i] = succeed(stored[i], result, now)
			change.messages = append(change.messages, r.rebuilt(key, after[i])...)
			if after[i].version > 0 {
				written++
			}
		}
		return writeTx(ctx, tx, at, after)
	})
	if err != nil {
		return 0, err
	}
	return written, r.Broadcast(ctx, change)
}
