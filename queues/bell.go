package queues

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"

	"github.com/holdfast/holdfast/migrations"
	"github.com/holdfast/holdfast/requests"
)

// Client is River's client as Holdfast uses it.
type Client = river.Client[pgx.Tx]

// WakeArgs is a wake as River stores it. It says that a slot has work and carries none; working it twice is harmless.
type WakeArgs struct {
	Lane string `json:"lane"`
	Slot int16  `json:"slot"`
}

// Kind names the job.
func (WakeArgs) Kind() string { return "holdfast_wake" }

// Bell makes wakes, in the transaction that makes the work or after it: a River job for each slot, which is durable, and a
// notification to the workers, which is faster (see Listen). It is safe for concurrent use.
type Bell struct {
	db     *pgxpool.Pool
	client *Client
	lanes  atomic.Pointer[map[string]*Lane] // of this process
}

// NewBell makes a bell. The River client behind it only inserts; its notifications are not held back, because they
// decide how soon a worker begins.
func NewBell(db *pgxpool.Pool) (*Bell, error) {
	client, err := river.NewClient(riverpgxv5.New(db), &river.Config{
		Schema:              migrations.RiverSchema,
		FetchCooldown:       time.Millisecond,
		Logger:              slog.New(slog.DiscardHandler), // it only inserts, and errors come back from the insert
		SkipUnknownJobCheck: true,
	})
	if err != nil {
		return nil, fmt.Errorf("make the bell: %w", err)
	}
	return &Bell{db: db, client: client}, nil
}

// Attach has slots that lanes of this process serve woken directly, and without a notification where this process drained
// them last.
func (b *Bell) Attach(lanes ...*Lane) {
	byName := make(map[string]*Lane, len(lanes))
	for _, l := range lanes {
		byName[l.Name()] = l
	}
	b.lanes.Store(&byName)
}

// RingTx makes a wake for each slot. Workers see them when tx commits. A transaction that has notified cannot be prepared. It
// is right at every isolation level.
func (b *Bell) RingTx(ctx context.Context, tx pgx.Tx, wakes []requests.Wake) error {
	lanes, slots := columnsOf(wakes)
	if _, err := tx.Exec(ctx, notifySQL, lanes, slots); err != nil {
		return fmt.Errorf("notify the workers: %w", err)
	}
	return b.insertTx(ctx, tx, wakes)
}

// insertTx inserts a River job for each wake.
func (b *Bell) insertTx(ctx context.Context, tx pgx.Tx, wakes []requests.Wake) error {
	params := make([]river.InsertManyParams, len(wakes))
	for i, w := range wakes {
		params[i] = river.InsertManyParams{
			Args:       WakeArgs{w.Lane, w.Slot},
			InsertOpts: &river.InsertOpts{Queue: w.Lane, MaxAttempts: wakeAttempts},
		}
	}
	if _, err := b.client.InsertManyFastTx(ctx, tx, params); err != nil {
		return fmt.Errorf("insert wakes: %w", err)
	}
	return nil
}

// notifySQL notifies the workers of slots.
const notifySQL = `SELECT pg_notify('` + wakeChannel + `', lane || '/' || slot) FROM unnest($1::text[], $2::smallint[]) AS wake (lane, slot)`

// Notify wakes the workers of slots: a lane of this process directly (Attach), the others by a notification, in one round
// trip that does not wait for the disk.
func (b *Bell) Notify(ctx context.Context, wakes []requests.Wake) error {
	if lanes := b.lanes.Load(); lanes != nil {
		wakes = slices.DeleteFunc(slices.Clone(wakes), func(w requests.Wake) bool {
			l := (*lanes)[w.Lane]
			return l != nil && l.Wake(w.Slot) && l.owns(w.Slot)
		})
	}
	if len(wakes) == 0 {
		return nil
	}
	lanes, slots := columnsOf(wakes)
	batch := &pgx.Batch{}
	batch.Queue(hintSQL)
	batch.Queue(notifySQL, lanes, slots)
	if err := b.db.SendBatch(ctx, batch).Close(); err != nil {
		return fmt.Errorf("notify the workers: %w", err)
	}
	return nil
}

func columnsOf(wakes []requests.Wake) (lanes []string, slots []int16) {
	for _, w := range wakes {
		lanes, slots = append(lanes, w.Lane), append(slots, w.Slot)
	}
	return lanes, slots
}

// hintSQL lets a commit not wait for the disk.
const hintSQL = `SELECT set_config('synchronous_commit', 'off', true)`

// Ring inserts a River job for each slot in a transaction of its own, which does not wait for the disk: a wake that a crash
// of the server takes with it is found by the tick.
func (b *Bell) Ring(ctx context.Context, wakes []requests.Wake) error {
	return pgx.BeginFunc(ctx, b.db, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, hintSQL); err != nil {
			return fmt.Errorf("insert wakes: %w", err)
		}
		return b.insertTx(ctx, tx, wakes)
	})
}

// wakeAttempts is how often River tries a wake; after that the tick does.
const wakeAttempts = 5
