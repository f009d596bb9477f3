package projections

import (
	"context"
	"iter"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/pg"
	"github.com/holdfast/holdfast/internal/telemetry"
)

// rebuildMax is how long one Rebuild may take.
const rebuildMax = 30 * time.Second

// Rebuild discards the state of a key and folds the events from the zero state.
// It stores the result with the next version (1 if there was no state) and the
// position, and sends one frame "rebuild" with the full state: clients replace
// what they have. If there are no events, it deletes the row, returns the zero
// state and sends nothing. The next event of a deleted key has version 1 again:
// a receiver that finds a lower version than it had reads the state.
//
// position is the audit id up to which the events contain the record: a Feed
// then leaves out what it delivers from before. It is 0 for events that do not
// come from the record; the position then stays as it is.
//
// It locks the key's row while it reads the events, and no audit subscription
// is delivered later records until it ends: an iterator that is slow reads its
// events before the call. After 30 seconds, or when ctx ends, nothing is changed.
// An event that cannot be folded is left out and logged. If none can be folded,
// the state stays as it is, and the error is that of the first event.
//
// Errors: ErrBroadcast after the state is stored; ErrBehind, ErrApply, ErrJSON and
// the database's if nothing is.
func (r *Runtime[E, S, D]) Rebuild(ctx context.Context, key Key, events iter.Seq[E], position int64) (state S, err error) {
	if err := checkKey(key.Key); err != nil {
		return state, r.unfit(key, err)
	}
	ctx, cancel := context.WithTimeout(ctx, rebuildMax)
	defer cancel()
	var result folded
	at := []place{{r.p.Name, key}}
	err = pgx.BeginTxFunc(ctx, r.db, readCommitted, func(tx pgx.Tx) error {
		stored, err := openTx(ctx, tx, at, pg.QueueLookUp)
		if err != nil {
			return err
		}
		if position != 0 && position < stored[0].position {
			return &Error{Kind: ErrBehind, Name: r.p.Name, Key: key}
		}
		result = r.foldFrom(ctx, key, events)
		if err := ctx.Err(); err != nil {
			return err
		}
		if result.refusedAll() {
			return result.failure
		}
		after := succeed(stored[0], result, max(position, stored[0].position))
		result.messages = r.rebuilt(key, after)
		result.row = after
		return writeTx(ctx, tx, at, []row{after})
	})
	if err != nil {
		return state, failed("rebuild "+r.p.Name, err)
	}
	if result.version == 0 {
		return state, nil
	}
	if err := r.decode(key, result.row, &state); err != nil {
		return state, err
	}
	return state, r.Broadcast(ctx, Change{messages: result.messages})
}

// foldFrom folds the events from the zero state, a snapshot interval at a time.
func (r *Runtime[E, S, D]) foldFrom(ctx context.Context, key Key, events iter.Seq[E]) (sum folded) {
	part := make([]numbered[E], 0, r.p.SnapshotInterval)
	for e := range events {
		if ctx.Err() != nil {
			return sum
		}
		if part = append(part, numbered[E]{0, e}); len(part) == cap(part) {
			sum.add(r.fold(key, sum.row, part))
			part, sum.messages = part[:0], nil
		}
	}
	sum.add(r.fold(key, sum.row, part))
	r.reportSkipped(ctx, key, &sum)
	return sum
}

func (r *Runtime[E, S, D]) reportSkipped(ctx context.Context, key Key, f *folded) {
	if f.skipped > 0 {
		telemetry.ProjectionSkipped(ctx, r.p.Name, f.skipped)
		r.log.ErrorContext(ctx, "events were left out of a rebuild", "projection", r.p.Name, "tenant_id", key.TenantID, "key", key.Key,
			"events", f.skipped, "error", f.failure)
	}
}

// refusedAll reports whether there were events, and none could be folded.
func (f *folded) refusedAll() bool { return f.applied == 0 && f.skipped > 0 }

// succeed returns the row that replaces the stored one: none without events,
// else the rebuilt state with the next version.
func succeed(stored row, rebuilt folded, position int64) row {
	if rebuilt.applied == 0 {
		return row{}
	}
	rebuilt.version, rebuilt.position = stored.version+1, position
	return rebuilt.row
}

// rebuilt returns the frame of a replaced state, none if it was deleted.
func (r *Runtime[E, S, D]) rebuilt(key Key, now row) []message {
	if now.version == 0 {
		return nil
	}
	return []message{{Frame: Frame{
		TenantID: key.TenantID, Channel: Channel(r.p.Name, key.Key), Event: eventRebuild,
		First: now.version, Version: now.version, Payload: now.state,
	}}}
}

// SeedTx replaces the states of keys in the caller's transaction, which must be
// READ COMMITTED, and else gets an error. It is for states that can be read
// elsewhere: from rows, under the locks that every writer of the keys' events
// holds until its commit. position is the last audit id that was drawn after
// the locks were taken: a Feed then leaves out the records that the states
// contain. The caller passes the change, which has a frame "rebuild" for each
// key, to Broadcast after the commit.
//
// It locks the rows of the keys. Errors: ErrJSON, the database's.
func (r *Runtime[E, S, D]) SeedTx(ctx context.Context, tx pgx.Tx, states map[Key]S, position int64) (c Change, err error) {
	if len(states) == 0 {
		return c, nil
	}
	at, after := make([]place, len(states)), make([]row, len(states))
	for i, key := range sortedKeys(states) {
		if err := checkKey(key.Key); err != nil {
			return c, r.unfit(key, err)
		}
		at[i] = place{r.p.Name, key}
		state := states[key]
		after[i].state, err = r.encode(key, &state)
		if err != nil {
			return c, err
		}
	}
	stored, err := openTx(ctx, tx, at, pg.QueueIsolation)
	if err != nil {
		return c, failed("seed "+r.p.Name, err)
	}
	for i := range after {
		after[i].version, after[i].position = stored[i].version+1, max(stored[i].position, position)
		c.messages = append(c.messages, r.rebuilt(at[i].Key, after[i])...)
	}
	return c, failed("seed "+r.p.Name, writeTx(ctx, tx, at, after))
}
