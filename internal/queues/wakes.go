package queues

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"

	"github.com/holdfast/holdfast/internal/lanes"
	"github.com/holdfast/holdfast/internal/pg"
	"github.com/holdfast/holdfast/migrations"
)

// Client is River's client as Holdfast uses it.
type Client = river.Client[pgx.Tx]

// WakeArgs is a wake as River stores it. It means that a slot has work, and
// carries none. Working it twice is harmless.
type WakeArgs struct {
	Lane lanes.Lane `json:"lane"`
	Slot int16      `json:"slot"`
}

// Kind names the job.
func (WakeArgs) Kind() string { return "holdfast_wake" }

// WakeInserter inserts wakes, in the transaction that makes the work or after
// it. A wake is a River job per slot, which is durable, and a notification to
// the workers, which is faster (see Listen). It is safe for concurrent use.
type WakeInserter struct {
	db     *pgxpool.Pool
	client *Client
	lanes  atomic.Pointer[map[lanes.Lane]*Lane] // of this process
}

// NewWakeInserter makes a wake inserter. Its River client only inserts. The
// client does not debounce its notifications, because they decide how soon a
// worker begins.
func NewWakeInserter(db *pgxpool.Pool) (*WakeInserter, error) {
	client, err := river.NewClient(riverpgxv5.New(db), &river.Config{
		Schema:              migrations.RiverSchema,
		FetchCooldown:       time.Millisecond,
		Logger:              slog.New(slog.DiscardHandler), // it only inserts, and errors come back from the insert
		SkipUnknownJobCheck: true,
	})
	if err != nil {
		return nil, fmt.Errorf("make the wake inserter: %w", err)
	}
	return &WakeInserter{db: db, client: client}, nil
}

// Attach makes Notify wake the slots of these lanes of this process directly,
// and without a notification if this process drained the slot last.
func (b *WakeInserter) Attach(served ...*Lane) {
	byName := make(map[lanes.Lane]*Lane, len(served))
	for _, l := range served {
		byName[l.Name()] = l
	}
	b.lanes.Store(&byName)
}

// InsertTx inserts a wake for each slot. Workers see them when tx commits. A
// transaction that has notified cannot be prepared. InsertTx may be called at
// every isolation level.
func (b *WakeInserter) InsertTx(ctx context.Context, tx pgx.Tx, wakes []lanes.Stream) error {
	names, slots := columnsOf(wakes)
	if _, err := tx.Exec(ctx, notifySQL, names, slots); err != nil {
		return fmt.Errorf("notify the workers: %w", err)
	}
	return b.insertJobsTx(ctx, tx, wakes)
}

// insertJobsTx inserts a River job for each wake.
func (b *WakeInserter) insertJobsTx(ctx context.Context, tx pgx.Tx, wakes []lanes.Stream) error {
	params := make([]river.InsertManyParams, len(wakes))
	for i, w := range wakes {
		params[i] = river.InsertManyParams{
			Args:       WakeArgs{w.Lane, w.Slot},
			InsertOpts: &river.InsertOpts{Queue: string(w.Lane), MaxAttempts: wakeAttempts},
		}
	}
	if _, err := b.client.InsertManyFastTx(ctx, tx, params); err != nil {
		return fmt.Errorf("insert wakes: %w", err)
	}
	return nil
}

// notifySQL notifies the workers of slots.
const notifySQL = `SELECT pg_notify('` + wakeChannel + `', lane || '/' || slot) FROM unnest($1::text[], $2::smallint[]) AS wake (lane, slot)`

// NotifyParallel is the end of a SQL statement: it notifies the workers of the
// slots of [lanes.ParallelSlots], if its CTE ended has a row.
const NotifyParallel = `SELECT pg_notify('` + wakeChannel + `', parallel.lane || '/' || parallel.slot)
FROM ` + lanes.ParallelSlots + ` parallel
WHERE EXISTS (SELECT FROM ended)`

// Notify wakes the workers of slots: a lane of this process directly (Attach),
// the others by a notification. That is one round trip, which does not wait for
// the disk.
func (b *WakeInserter) Notify(ctx context.Context, wakes []lanes.Stream) error {
	if own := b.lanes.Load(); own != nil {
		wakes = slices.DeleteFunc(slices.Clone(wakes), func(w lanes.Stream) bool {
			l := (*own)[w.Lane]
			return l != nil && l.Wake(w.Slot) && l.owns(w.Slot)
		})
	}
	if len(wakes) == 0 {
		return nil
	}
	names, slots := columnsOf(wakes)
	batch := &pgx.Batch{}
	batch.Queue(asyncCommitSQL)
	batch.Queue(notifySQL, names, slots)
	if err := b.db.SendBatch(ctx, batch).Close(); err != nil {
		return fmt.Errorf("notify the workers: %w", err)
	}
	return nil
}

func columnsOf(wakes []lanes.Stream) (names []string, slots []int16) {
	for _, w := range wakes {
		names, slots = append(names, string(w.Lane)), append(slots, w.Slot)
	}
	return names, slots
}

// asyncCommitSQL makes the commit not wait for the disk.
const asyncCommitSQL = `SELECT set_config('synchronous_commit', 'off', true)`

// Insert inserts a River job for each slot in its own transaction, which does
// not wait for the disk. If a crash of the server loses a wake, the tick finds
// the work.
func (b *WakeInserter) Insert(ctx context.Context, wakes []lanes.Stream) error {
	return pgx.BeginFunc(ctx, b.db, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, asyncCommitSQL); err != nil {
			return fmt.Errorf("insert wakes: %w", err)
		}
		return b.insertJobsTx(ctx, tx, wakes)
	})
}

// wakeAttempts is how often River tries a wake; after that the tick does.
const wakeAttempts = 5

// wakeChannel is the channel of the notifications of slots with work; the
// payload is lane/slot.
const wakeChannel = "holdfast_wake"

// otherWaitMax is the longest wait of a process that did not drain a slot last,
// so that the one that did comes first.
const otherWaitMax = 10 * time.Millisecond

// Listen wakes the slots that a WakeInserter notifies of, until ctx ends. It
// uses a separate connection, which db makes. A lost notification costs a tick.
// Each time the connection is established, the served lanes query for work.
func Listen(ctx context.Context, db *pgxpool.Pool, log *slog.Logger, served ...*Lane) error {
	listener := pg.Listener{
		DB: db, Channel: wakeChannel,
		Began: func(ctx context.Context) error {
			for _, l := range served {
				if err := l.dispatch(ctx); err != nil {
					return err
				}
			}
			return nil
		},
		Received: func(payload string) {
			name, number, _ := strings.Cut(payload, "/")
			slot, err := strconv.ParseInt(number, 10, 16)
			if err != nil || slot < 0 {
				return // of another program
			}
			for _, l := range served {
				if string(l.Name()) == name {
					l.wakeAfterOwner(int16(slot))
				}
			}
		},
		Lost: func(ctx context.Context, err error) {
			log.WarnContext(ctx, "the connection that listens for wakes was lost; ticks find the work meanwhile", "error", err)
		},
	}
	return listener.Run(ctx)
}

// wakeAfterOwner wakes a slot of which all processes were notified: at once if
// this process drained it last, else a little later.
func (l *Lane) wakeAfterOwner(slot int16) {
	if l.owns(slot) {
		l.Wake(slot)
		return
	}
	wait := time.Duration(rand.Int64N(int64(otherWaitMax))) //nolint:gosec // it only spreads the processes
	time.AfterFunc(wait, func() { l.Wake(slot) })
}

const (
	// wakesBatch is how many wakes one statement deletes, wakesMax how many one
	// call of PurgeWakes deletes.
	wakesBatch = 5_000
	wakesMax   = 500_000
)

// purgeWakesSQL leaves out wakes that are being worked.
const purgeWakesSQL = `
DELETE FROM ` + migrations.RiverSchema + `.river_job
WHERE id IN (
    SELECT j.id
    FROM ` + migrations.RiverSchema + `.river_job j
    WHERE j.kind = 'holdfast_wake' AND j.state <> 'running' AND j.created_at < clock_timestamp() - $1::interval
    ORDER BY j.id
    LIMIT $2
    FOR UPDATE SKIP LOCKED)`

// PurgeWakes deletes wakes that are older than retention. If no River client
// works the lanes, no other process completes or deletes them. more means that
// it ended at its bound.
func PurgeWakes(ctx context.Context, db *pgxpool.Pool, retention time.Duration) (deleted int64, more bool, err error) {
	for deleted < wakesMax {
		tag, err := db.Exec(ctx, purgeWakesSQL, retention, wakesBatch)
		if err != nil {
			return deleted, false, fmt.Errorf("purge wakes: %w", err)
		}
		deleted += tag.RowsAffected()
		if tag.RowsAffected() < wakesBatch {
			return deleted, false, nil
		}
	}
	return deleted, true, nil
}
